import io

from tuner.report.table import BOLD, PLAIN, RED, Column, Row, write_table

COLUMNS = (Column("layer"), Column("params", right=True), Column("shape", spare=1), Column("note", spare=2))
ROWS = (Row(("dense_0", "2.05k", "64x32", "first")), Row(("a", "3", "-", ""), RED))


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def written(file: io.StringIO, **kwargs: object) -> str:
    write_table(COLUMNS, ROWS, file, **kwargs)
    return file.getvalue()


def test_columns_are_aligned_and_lines_end_without_blanks():
    assert written(io.StringIO()) == (
        "layer    params  shape  note\n"
        "dense_0   2.05k  64x32  first\n"
        "a             3  -\n"
    )  # fmt: skip


def test_a_narrow_width_drops_the_most_dispensable_columns_first():
    assert written(io.StringIO(), width=24) == (
        "layer    params  shape\n"
        "dense_0   2.05k  64x32\n"
        "a             3  -\n"
    )  # fmt: skip


def test_what_cannot_be_spared_stays_however_narrow():
    assert written(io.StringIO(), width=3).splitlines()[0] == "layer    params"


def test_color_only_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    lines = written(Terminal(), width=80).splitlines()
    assert lines[0].startswith(BOLD)
    assert lines[2] == f"{RED}a             3  -{PLAIN}"
    assert "\033" not in written(io.StringIO())


def test_no_color_is_respected(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\033" not in written(Terminal(), width=80)


def test_a_table_without_rows_has_its_titles():
    file = io.StringIO()
    write_table(COLUMNS, [], file)
    assert file.getvalue() == "layer  params  shape  note\n"
