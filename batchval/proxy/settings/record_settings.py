"""The settings of record rules, of schema registries and of custom rules' budgets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
)

from batchval.errors import BatchvalError
from batchval.proxy.kit.rule_budget import RuleBudget
from batchval.proxy.settings.setting_types import PathField, SecretField, check_url
from batchval.record_rules import RecordRules, SchemaIds
from batchval.yaml_settings.wording import STRICT

__all__ = ["CustomRuleNames", "CustomRules", "RecordRulesRule", "SchemaIdRule", "SchemaRegistry"]

_NAME: Final = r"^[A-Za-z0-9_.-]{1,64}$"
#: Takes the topic's name in a subject.
TOPIC: Final = "{topic}"
#: Bytes of a subject: more than a topic's name and any suffix.
MAX_SUBJECT_BYTES: Final = 500
CustomRuleNames = list[Annotated[str, Field(min_length=1, max_length=500)]]
Action = Literal["refuse", "pass"]

_registry_url = partial(
    check_url, path=", with a path where the registry has one", instead="username and password"
)


class _Model(BaseModel):
    model_config = STRICT


class SchemaRegistry(_Model):
    """A schema registry, by the REST API of Confluent's.

    ``name``        that ``schema_id`` of a record rule refers to
    ``ca``          authorities of its certificate; None: the system's
    ``timeout_ms``  for an answer; a batch with an id that is not known waits as long at most
    ``refresh_ms``  between two readings of all subjects
    ``absent_ms``   how long an id that is not registered is not asked for again
    ``on_error``    what becomes of a batch with such an id while the registry does not answer
    """

    name: Annotated[str, Field(pattern=_NAME)] = "default"
    url: Annotated[str, AfterValidator(_registry_url)]
    username: Annotated[str, Field(min_length=1)] | None = None
    password: SecretField | None = None
    ca: PathField | None = None
    timeout_ms: Annotated[int, Field(ge=100, le=60_000)] = 2_000
    refresh_ms: Annotated[int, Field(ge=1_000)] = 60_000
    absent_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 1_000
    on_error: Action = "refuse"


class SchemaIdRule(_Model):
    """One place of a schema id, and which ids are allowed: a list, a registry's, or any (neither).

    ``subject``  in the registry; ``{topic}`` stands for the topic's name
    """

    place: Literal["value", "key", "header"] = "value"
    header: str | None = None
    of: Literal["value", "key"] | None = None
    ids: list[int] | None = None
    guids: list[str] | None = None
    registry: str | None = None
    subject: str | None = None

    @property
    def subject_of_topics(self) -> str:
        """Return the subject, by default the one of TopicNameStrategy."""
        described = self.of or ("value" if self.place == "header" else self.place)
        return self.subject or f"{TOPIC}-{described}"

    def schema_ids(self) -> SchemaIds:
        """Return the ids for the engine, for a registry still none. Raises BatchvalError."""
        keys = ("place", "header", "of", "ids", "guids")
        found = SchemaIds.from_mapping({key: getattr(self, key) for key in keys})
        return found if self.registry is None else replace(found, ids=frozenset())


def _listed(value: Any) -> Any:
    """Return one mapping as a list of one."""
    return [value] if isinstance(value, dict | SchemaIdRule) else value


def _key(hint: Any) -> Any:
    """Return the type of a key in a file, where lists stand for tuples, and None for no key."""
    return (list[str] if hint == tuple[str, ...] else hint) | None


if TYPE_CHECKING:
    _RecordKeys = _Model
else:  # the keys of RecordRules, so that a new one needs no line here
    _RecordKeys = create_model(
        "_RecordKeys",
        __base__=_Model,
        **{name: (_key(hint), None) for name, hint in get_type_hints(RecordRules).items()},
    )


class RecordRulesRule(_RecordKeys):
    """The rules for each record of a topic: ``batchval.record_rules.RecordRules``."""

    schema_id: Annotated[list[SchemaIdRule], BeforeValidator(_listed)] = Field(default_factory=list)

    @field_validator("*")
    @classmethod
    def _as_the_engine_takes_it(cls, value: Any, info: ValidationInfo) -> Any:
        """Check one key alone, so that each wrong value has its own error."""
        name = info.field_name or ""
        if name != "schema_id" and value is not None:
            try:
                RecordRules.from_mapping({name: value})
            except BatchvalError as error:
                raise ValueError(str(error).removeprefix(f"{name} ")) from None
        return value

    def record_rules(self) -> RecordRules:
        """Return the rules for the engine. Raises BatchvalError where keys do not fit together."""
        values = self.model_dump(exclude={"schema_id"}, exclude_none=True)
        rules = RecordRules.from_mapping(values)
        return replace(rules, schema_id=tuple(one.schema_ids() for one in self.schema_id) or None)


class CustomRules(_Model):
    """The budget of custom rules, and the decision on batches that they cannot check.

    ``budget_ms``   CPU time of one call for each MiB or 2,000 records, and for less
    ``overruns``    calls over the budget within ``suspend_ms`` after which a sender is refused
    ``suspend_ms``  for so long
    ``on_suspend``  what becomes of batches while the rule is suspended for all
    ``on_error``    what becomes of a batch for which the rule raises an exception
    """

    budget_ms: Annotated[int, Field(ge=1, le=60_000)] = 5
    overruns: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    suspend_ms: Annotated[int, Field(ge=1, le=86_400_000)] = 60_000
    on_suspend: Action = "refuse"
    on_error: Action = "refuse"

    @property
    def budget(self) -> RuleBudget:
        """Return the budget of each rule."""
        return RuleBudget(
            budget_s=self.budget_ms / 1000,
            overruns=self.overruns,
            suspend_s=self.suspend_ms / 1000,
            pass_suspended=self.on_suspend == "pass",
            pass_errors=self.on_error == "pass",
        )
