"""Tables as people have them: what is detected, what becomes of each column, and how kernels are written."""

from pathlib import Path

import numpy as np
import pytest

from fsplaplace.cli._columns import Column, encode, learn_column
from fsplaplace.cli._kernel import kernel_text
from fsplaplace.cli._reading import read_text_table
from fsplaplace.cli._tables import Wanted, _columns, _complete, _held_out, estimator
from fsplaplace.estimators import FSPRegressor, read_kernel

PLAIN = "x,y\n1.5,2\n-3,4e1\n.5,6\n"


def read(tmp_path: Path, text: str):
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode())
    return read_text_table(path)


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (PLAIN, None),
        (PLAIN.replace(",", ";"), "columns are separated by semicolons"),
        (PLAIN.replace(",", "\t"), "columns are separated by tabs"),
        (PLAIN.replace(",", " | "), "columns are separated by bars"),
        (PLAIN.replace(",", "   "), "columns are separated by blanks"),
        (PLAIN.replace(",", ";").replace(".", ","), "decimal commas: '1,5' is 1.5"),
        ('"x","y"\n"1,5","2"\n"-3","4e1"\n"0,5","6"\n', "decimal commas: '1,5' is 1.5"),
        ("# station 5; 1,000 rows\n#\n\n" + PLAIN, "2 comment lines skipped"),
        ("# x, y\n" + PLAIN.removeprefix("x,y\n"), "the last comment names the columns: x, y"),
        (PLAIN.replace("\n", "\r\n"), None),
        (PLAIN.replace("\n", "\r"), None),
    ],
)
def test_every_way_to_write_a_table_gives_the_same_numbers_and_says_what_it_took(tmp_path, text, note):
    table = read(tmp_path, text)
    assert table.names == ("x", "y")
    np.testing.assert_array_equal(
        encode(table, [Column("x", "number"), Column("y", "number")]), [[1.5, 2], [-3, 40], [0.5, 6]]
    )
    assert note is None or note in table.notes
    assert bool(table.notes) == (note is not None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x;y\n1,5;2\n1.5;2\n", "row 2 has '1,5' and row 3 has '1.5'"),
        ("x;y\n1,234;2\n2,345;3\n", "which may be 1234 or 1.234"),
        ('x;y\n"1\n2;3\n', "cells"),
    ],
)
def test_a_number_whose_meaning_is_not_sure_is_refused(tmp_path, text, words):
    with pytest.raises(ValueError, match=words):
        read(tmp_path, text)


def test_lines_are_those_of_the_file_where_a_cell_spans_two(tmp_path):
    table = read(tmp_path, '# note\nname,x\n"two\nlines",1\nb,2\n')
    assert table.lines == [4, 5]
    assert table.cells[0] == ["two\nlines", "1"]


def test_dates_are_years_of_equal_length(tmp_path):
    days = ["1970-01-01", "2000-03-01T12:00", "2000-03-01 13:00+01:00", "2024-02", "1969-12-31T23:59:30.5Z"]
    table = read(tmp_path, "when\n" + "\n".join(days) + "\n")
    column = learn_column(table, "when")
    assert column == Column("when", "date")
    years = column.numbers(table)[:, 0]
    reference = np.array(
        ["1970-01-01", "2000-03-01T12:00", "2000-03-01T12:00", "2024-02-01", "1969-12-31T23:59:30.5"], "datetime64[ms]"
    )
    since = (reference - np.datetime64("1970-01-01", "ms")) / np.timedelta64(1, "D")
    np.testing.assert_allclose((years - 1970) * 365.2425, since, atol=1e-7)
    with pytest.raises(ValueError, match="row 3 has '2020-02-30' in column 'when', which is no date"):
        column.numbers(read(tmp_path, "when\n2020-02-28\n2020-02-30\n"))


def test_categories_are_zeros_and_ones_and_unknown_ones_are_named(tmp_path):
    table = read(tmp_path, "colour,sex,y\nred,f,1\nblue,m,2\ngreen,f,3\nred,m,4\nblue,f,5\ngreen,m,6\n")
    colour, sex = learn_column(table, "colour"), learn_column(table, "sex")
    assert colour.encoded == ("colour=blue", "colour=green", "colour=red")
    assert sex.encoded == ("sex=m",)
    codes = encode(table, [colour, sex])
    np.testing.assert_array_equal(codes[:, :3].sum(axis=1), 1)
    np.testing.assert_array_equal(codes[:, 3], [0, 1, 0, 1, 0, 1])
    other = read(tmp_path, "colour,sex\npink,m\nred,f\n")
    np.testing.assert_array_equal(encode(other, [colour, sex]), [[0, 0, 0, 1], [0, 0, 1, 0]])
    np.testing.assert_array_equal(colour.unknown(other), [True, False])
    assert Column.restored(colour.described()) == colour


@pytest.mark.parametrize(
    ("cells", "options", "kind"),
    [
        (["1", "2", "2", "1"], {}, "number"),
        (["1", "2", "2", "1"], {"categorical": True}, "category"),
        (["NA", "x", "x", "NA"], {}, "category"),
        (["2020-01-01", "2020-01-02"], {}, "date"),
    ],
)
def test_the_kind_of_a_column_is_that_of_all_its_cells(tmp_path, cells, options, kind):
    assert learn_column(_one_column(tmp_path, cells), "c", **options).kind == kind


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (["1", "red", "2", "1"], "row 3 has 'red' in column 'c', which is not a number"),
        (["anna", "bert", "carl", "dora"], "4 different texts in 4 rows"),
        (["red"] * 4, "'red' in every row"),
    ],
)
def test_a_column_that_is_no_input_is_named(tmp_path, cells, words):
    with pytest.raises(ValueError, match=words):
        learn_column(_one_column(tmp_path, cells), "c")


def _one_column(tmp_path, cells):
    return read(tmp_path, "c,y\n" + "".join(f"{cell},1\n" for cell in cells))


DATED = (Column("when", "date"), Column("age", "number"), Column("colour", "category", ("a", "b", "c")))


@pytest.mark.parametrize(
    ("text", "period", "result"),
    [
        ("matern32", None, "matern32"),
        ("rbf+linear*matern12", None, "rbf + linear * matern12"),
        ("linear + periodic(1 year) * rbf", None, 'linear + periodic(period=1.0, "when") * rbf'),
        ("periodic(6 months, lengthscale=2)", None, 'periodic(period=0.5, lengthscale=2.0, "when")'),
        ("rbf(30, age)", None, 'rbf(lengthscale=30.0, "age")'),
        ("rbf(colour)", None, 'rbf("colour=a", "colour=b", "colour=c")'),
        ("rbf * (linear + periodic)", "1 year", 'rbf * (linear + periodic(period=1.0, "when"))'),
        ("matern32", "12, age", 'matern32 + periodic(period=12.0, "age") * rbf("age")'),
    ],
)
def test_kernels_are_written_for_the_columns_of_the_table(text, period, result):
    assert kernel_text(text, period, DATED) == result
    assert str(read_kernel(result)) == result


@pytest.mark.parametrize(
    ("text", "period", "words"),
    [
        ("rbf(2 parsecs, when)", None, "unknown unit"),
        ("rbf(2 years, age)", None, "'age' holds no dates"),
        ("periodic(1)", "1 year", "leave out one"),
        ("periodic", "often", "--period is 'often'"),
        ("rbf(height)", None, "looks at 'height', but the inputs are when, age, colour"),
        ("rbf(__import__('os'))", None, "character"),
    ],
)
def test_a_kernel_that_does_not_fit_the_table_is_one_sentence(text, period, words):
    with pytest.raises(ValueError, match=words.replace("(", r"\(")):
        kernel_text(text, period, DATED)


def test_a_column_may_be_several_words_and_advice_can_be_typed_as_it_stands():
    column = Column("decimal date", "number")
    assert kernel_text("linear + rbf(2, decimal date)", None, [column]) == kernel_text(
        'linear + rbf(2, "decimal date")', None, [column]
    )
    with pytest.raises(ValueError, match="as in ") as refusal:
        kernel_text("periodic(1 year)", None, [column])
    advice = str(refusal.value).split("as in ")[1]
    assert kernel_text(advice, None, [column]) == 'periodic(period=1.0, "decimal date")'


def test_days_weeks_and_years_are_in_proportion():
    def period(text):
        return float(kernel_text(f"periodic({text})", None, DATED).split("=")[1].split(",")[0])

    assert period("365.2425 days") == pytest.approx(1)
    assert period("1 week") == pytest.approx(7 * period("1 day")) == pytest.approx(168 * period("1 hour"))
    assert period("1 minute") == pytest.approx(60 * period("1 second"))


def test_features_and_drop_choose_the_inputs(tmp_path):
    table = read(tmp_path, 'a,"b,c",d,y\n' + "".join(f"{k},{k},{k},{k}\n" for k in range(6)))

    def names(**options):
        return [column.name for column in _columns(table, Wanted("y", **options))]

    assert names() == ["a", "b,c", "d"]
    assert names(features=["d,a"]) == ["d", "a"]
    assert names(drop=["b,c"]) == ["a", "d"]
    for options, words in (
        ({"features": ["z"]}, "--features names 'z'"),
        ({"drop": ["a", "b,c", "d"]}, "no other column"),
        ({"features": ["y"]}, "name it once"),
        ({"categorical": ["y"]}, "is no input"),
    ):
        with pytest.raises(ValueError, match=words):
            names(**options)


def test_a_date_whose_order_is_not_sure_is_refused_with_the_way_to_write_it(tmp_path):
    table = read(tmp_path, "when,y\n" + "1/2/2020,1\n13.2.20,2\n3-2-2020 10:00,3\n" * 3)
    with pytest.raises(ValueError, match=r"'1/2/2020', which may be a date; write dates as 2026-01-31"):
        learn_column(table, "when")
    assert learn_column(table, "when", categorical=True).kind == "category"


def test_rows_with_gaps_are_dropped_only_if_asked_and_counted(tmp_path):
    table = read(
        tmp_path,
        "when,a,kind,unused,y\n2020-01,1,none,,1\n2020-02,NA,red,5,2\n,3,none,6,?\n2020-04,4,,7,4\n2020-05,5,red,,5\n",
    )
    used = Wanted("y", drop=["unused"])
    with pytest.raises(
        ValueError, match=r"row 3 has no value in column 'a' \(3 of 5 rows have gaps\); .* --drop-missing"
    ):
        _complete(table, used)
    whole, said = _complete(table, used._replace(drop_missing=True))
    # "none" is a category among texts, and what a column holds that is not used does not matter.
    assert whole.cells == [table.cells[0], table.cells[4]]
    assert whole.lines == [2, 6]
    assert said == ["3 rows left out for lack of a value ('when' 1, 'a' 1, 'kind' 1, 'y' 1)"]
    assert _complete(whole, used) == (whole, [])


def test_the_last_rows_are_the_latest_ones():
    X = np.array([[3.0, 0], [1, 0], [2, 0], [0, 0], [4, 0]])
    wanted = Wanted("y", test="last", test_fraction=0.4)
    held, said = _held_out(X, (Column("when", "date"), Column("a", "number")), wanted)
    assert X[held, 0].tolist() == [3, 4]
    assert "the last 2 by 'when'" in said
    held, said = _held_out(X, (Column("a", "number"), Column("b", "number")), wanted)
    assert np.flatnonzero(held).tolist() == [3, 4]
    assert "of the table" in said
    held, _ = _held_out(X[:, :1], (Column("a", "number"),), wanted)
    assert X[held, 0].tolist() == [3, 4]


def test_what_is_not_asked_for_is_the_estimators_default():
    own = {"random_state": 0, "progress": True}
    assert estimator(Wanted("y"), DATED).get_params() == FSPRegressor(**own).get_params()
    given = estimator(Wanted("y", kernel="rbf", effort="fast", steps=7, quiet=True), DATED).get_params()
    assert given == FSPRegressor(kernel="rbf", effort="fast", steps=7, random_state=0, progress=False).get_params()
