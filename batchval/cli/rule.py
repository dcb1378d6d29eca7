"""``batchval rule``: explains a rule by its id, its slug or its number in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchval.cli.commands import Command, nearest
from batchval.cli.options import json_option
from batchval.cli.output import print_json

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from batchval.rules import Rule

_WIDTH = 80  # columns, where the terminal is not narrower
_LABEL = 10  # columns of "Profiles", with blanks


class _RuleName(click.ParamType[str]):
    """The id or slug of a rule; Tab completes both."""

    name = "rule"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from batchval.rules import Rule

        return [
            CompletionItem(word, help=rule.summary)
            for rule in Rule
            for word in (rule.id, rule.slug)
            if word.startswith(incomplete) and (incomplete or word == rule.id)
        ]


@click.command(
    "rule",
    cls=Command,
    examples=(
        "batchval rule 14",
        "batchval rule crc-mismatch",
        "batchval rule L1 --json",
        "batchval rule --versions",
    ),
)
@click.argument("name", metavar="[ID|SLUG]", required=False, type=_RuleName())
@click.option(
    "--versions",
    "versions",
    is_flag=True,
    help="Print which releases of Kafka answer alike, and what changed between them.",
)
@json_option
def command(name: str | None, versions: bool, as_json: bool) -> int:
    """Explain a rule: what it requires, Kafka's class and method, the answer, why, and what to do.

    Without a name it lists all rules.
    """
    from batchval.rules import Rule

    if versions:
        if name is not None:
            raise click.UsageError("--versions cannot be combined with a rule: leave it out")
        _say_versions(as_json)
        return 0
    rules = list(Rule) if name is None else [_named(name)]
    for rule in rules:
        if as_json:
            print_json(_row(rule))
        elif name is None:
            click.echo(f"{rule.id:<4}{rule.slug:<32}{_answer(rule)}")
        else:
            click.echo(_explained(rule))
    return 0


def _say_versions(as_json: bool) -> None:
    """Print the rows of batchval.kafka_versions, oldest first."""
    from batchval.kafka_versions import KAFKA_VERSIONS, changes_of, releases_of

    for row in KAFKA_VERSIONS:
        changes = changes_of(row)
        if as_json:
            print_json(
                {"type": "row", "row": row, "releases": releases_of(row), "changes": changes}
            )
            continue
        words = [f"{column}: {_word(value)}" for column, value in changes.items()]
        click.echo(f"{row:<7}{', '.join(releases_of(row))}")
        for word in words:
            click.echo(f"       {word}")


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "none" if value is None else str(value)


def _named(name: str) -> Rule:
    """Return the rule of an id or slug, in any case. Raises UsageError with the most similar
    one.
    """
    from batchval.rules import EXTRA_IDS, FINDING_IDS, RECORD_RULE_IDS, Rule

    wanted = name.strip().lower()
    known = {word: rule for rule in Rule for word in (rule.id.lower(), rule.slug)}
    # what check prints: "14 crc-mismatch"
    found = known.get(wanted) or known.get(wanted.partition(" ")[0])
    if found is None:
        slugs = [rule.slug for rule in Rule]
        raise click.UsageError(
            f"unknown rule {name!r}{nearest(wanted, slugs) or '.'} "
            f"Expected an id (1 to 47, {EXTRA_IDS}, {FINDING_IDS}, {RECORD_RULE_IDS}) or a slug; "
            "`batchval rule` lists them"
        )
    return found


def _row(rule: Rule) -> dict[str, Any]:
    from batchval.errors import RETRIABLE
    from batchval.rule_texts import RULE_TEXTS

    code, text = rule.error_code, RULE_TEXTS[rule.id]
    return {
        "type": "rule",
        "rule": rule.id,
        "slug": rule.slug,
        "number": rule.number,
        "summary": rule.summary,
        "profiles": sorted(rule.profiles),
        "error_code": None if code is None else code.name,
        "error_number": None if code is None else int(code),
        "retriable": code in RETRIABLE,
        "kafka": text.kafka or None,
        "why": text.why,
        "advice": text.advice,
        "broker": text.broker,
    }


def _answer(rule: Rule) -> str:
    code = rule.error_code
    return "no error" if code is None else f"{code.name} ({int(code)})"


def _explained(rule: Rule) -> str:
    """Return the page of one rule, at most 80 columns wide."""
    import shutil
    import textwrap

    row = _row(rule)
    width = max(min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns), 2 * _LABEL)
    answers = "produce" in rule.profiles
    retry = ", which producers retry" if answers and row["retriable"] else ""
    facts = {
        "When": rule.summary,
        "Kafka": row["kafka"] or "has no such check",
        "Answer" if answers else "Error": _answer(rule) + retry,
        "Profiles": ", ".join(row["profiles"]),
        "Why": row["why"],
        "Advice": row["advice"],
    }
    if row["broker"]:
        facts["Broker"] = row["broker"]
    indent = " " * _LABEL
    lines = [str(rule), ""]
    for label, text in facts.items():
        lines += textwrap.wrap(
            text,
            width,
            initial_indent=f"{label:<{_LABEL}}",
            subsequent_indent=indent,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
