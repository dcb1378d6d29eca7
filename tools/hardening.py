"""Check how the extension modules of a wheel were linked: what a release promises about each .so.

    python tools/hardening.py WHEEL…

Every module must have: full RELRO and BIND_NOW, a stack that is not executable, no segment that is
both writable and executable, no RPATH or RUNPATH, no text relocations, the mark of CET (x86-64) or
of BTI and PAC (aarch64), a stack protector, no symbol table and no debugging information,
PyInit_NAME as its only exported name, libc as its only library, no name that neither Python nor
libc has, and no path of the machine that built it. With glibc, no module may call a function of
printf's family that _FORTIFY_SOURCE did not replace.

Exit codes: 0, 1 a module lacks a property.
"""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

EXECUTE, WRITE = 1, 2
DF_BIND_NOW, DF_1_NOW = 8, 1
#: {machine: (type of the property, the bits that must be set in it, their names)}
BRANCHES = {
    "EM_X86_64": ("GNU_PROPERTY_X86_FEATURE_1_AND", 3, "CET (IBT, SHSTK)"),
    "EM_AARCH64": ("GNU_PROPERTY_AARCH64_FEATURE_1_AND", 3, "BTI and PAC"),
}
LIBRARIES = {"libc.so.6", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
LIBRARIES |= {"libc.musl-x86_64.so.1", "libc.musl-aarch64.so.1"}
#: glibc has a checked form of each (__snprintf_chk) that is used whatever is known of sizes
UNFORTIFIED = {f"{v}{target}printf" for v in ("", "v") for target in ("", "f", "s", "sn")}


def modules(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of each shared object in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".so"):
                yield name, archive.read(name)


def faults(name: str, data: bytes, folders: Iterable[str] = ()) -> Iterator[str]:
    """Yield each property that a module lacks. ``folders`` are paths that its bytes must not
    have.
    """
    elf = ELFFile(io.BytesIO(data))
    yield from _segments(elf)
    yield from _dynamic(elf)
    yield from _branches(elf)
    yield from _symbols(elf, name)
    for section in elf.iter_sections():
        if section.name == ".symtab" or section.name.startswith((".debug", ".zdebug")):
            yield f"it is not stripped: it has a section {section.name}"
    for folder in folders:
        if folder.encode() in data:
            yield f"it holds the path {folder}"


def _segments(elf: ELFFile) -> Iterator[str]:
    segments = {segment["p_type"]: segment["p_flags"] for segment in elf.iter_segments()}
    if "PT_GNU_RELRO" not in segments:
        yield "no RELRO"
    if segments.get("PT_GNU_STACK", EXECUTE) & EXECUTE:
        yield "its stack is executable"
    for segment in elf.iter_segments("PT_LOAD"):
        if segment["p_flags"] & WRITE and segment["p_flags"] & EXECUTE:
            yield "a segment is writable and executable"


def _dynamic(elf: ELFFile) -> Iterator[str]:
    section = elf.get_section_by_name(".dynamic")
    if not isinstance(section, DynamicSection):
        yield "it is not a shared object"
        return
    tags = list(section.iter_tags())
    flags = {tag["d_tag"]: tag["d_val"] for tag in tags}
    if not (flags.get("DT_FLAGS", 0) & DF_BIND_NOW or flags.get("DT_FLAGS_1", 0) & DF_1_NOW):
        yield "no BIND_NOW"
    for tag in tags:
        kind = tag["d_tag"]
        if kind in {"DT_RPATH", "DT_RUNPATH"}:
            yield f"{kind.removeprefix('DT_')} {getattr(tag, 'rpath', None) or tag.runpath}"
        elif kind == "DT_TEXTREL":
            yield "text relocations"
        elif kind == "DT_NEEDED" and tag.needed not in LIBRARIES:
            yield f"it needs the library {tag.needed}"


def _branches(elf: ELFFile) -> Iterator[str]:
    machine = elf["e_machine"]
    if machine not in BRANCHES:
        yield f"no rule for the machine {machine}"
        return
    wanted, bits, names = BRANCHES[machine]
    found = 0
    for section in elf.iter_sections():
        for note in section.iter_notes() if isinstance(section, NoteSection) else ():
            if note["n_type"] == "NT_GNU_PROPERTY_TYPE_0":
                for one in note["n_desc"]:
                    found |= one["pr_data"] if one["pr_type"] == wanted else 0
    if found & bits != bits:
        yield f"not marked for {names}"


def _symbols(elf: ELFFile, name: str) -> Iterator[str]:
    exported, imported = set(), set()
    for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
        if symbol.name and symbol["st_shndx"] == "SHN_UNDEF":
            imported.add(symbol.name)
        elif symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL":
            exported.add(symbol.name)
    entry = f"PyInit_{Path(name).name.partition('.')[0]}"
    if exported != {entry}:
        yield f"it exports {', '.join(sorted(exported)) or 'nothing'}: only {entry} is wanted"
    if "__stack_chk_fail" not in imported:
        yield "no stack protector"
    if "musl" not in name and (plain := imported & UNFORTIFIED):
        yield f"calls without _FORTIFY_SOURCE: {', '.join(sorted(plain))}"
    if "musl" not in name and (unknown := imported - _versioned(elf)):
        yield f"no library that it needs has {', '.join(sorted(unknown))}"


def _versioned(elf: ELFFile) -> set[str]:
    """Return the imported names that Python or a library brings: those of glibc have a version."""
    versions, symbols = elf.get_section_by_name(".gnu.version"), elf.get_section_by_name(".dynsym")
    return {
        symbol.name
        for number, symbol in enumerate(symbols.iter_symbols())
        if symbol.name.startswith(("Py", "_Py"))
        or isinstance(versions.get_symbol(number)["ndx"], int)  # 2 and more: a version of a library
    }


def check(wheel: Path, folders: Iterable[str] = ()) -> tuple[int, list[str]]:
    """Return how many modules a wheel has, and what each of them lacks."""
    found = list(modules(wheel))
    lacking = [
        f"{wheel.name}: {name}: {fault}"
        for name, data in found
        for fault in faults(name, data, folders)
    ]
    if not found:
        lacking.append(f"{wheel.name}: it has no extension module")
    return len(found), lacking


def main(wheels: list[str]) -> int:
    """Run the command."""
    if not wheels:
        print("usage: python tools/hardening.py WHEEL…", file=sys.stderr)
        return 2
    failed = False
    for wheel in wheels:
        count, lacking = check(Path(wheel))
        failed = failed or bool(lacking)
        print(*lacking, f"{wheel}: {count} modules, {len(lacking)} faults", sep="\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
