"""Rows of text files: separated values, JSON lines, word columns and plain lines; and how faults are reported."""

from __future__ import annotations

import gzip
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.config import ConfigError, build, from_dict
from ernie.data.labeled.lines import read_separated
from ernie.data.labeled.read import read_rows, read_split
from ernie.data.labeled.row import Fault, Row, RowOptions
from ernie.data.read_lines import Line
from ernie.errors import Remark, UserError

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes a file in the working folder and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, content: str | bytes) -> str:
        data = content.encode() if isinstance(content, str) else content
        Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return name

    return write


def rows(source: str, **options: Any) -> list[Row]:
    return read_split("train", [source], RowOptions(**options)).rows


def lines(source: str, **options: Any) -> list[int]:
    return [row.place.line for row in rows(source, **options)]


FILES = {
    "tsv": "text\tlabel\na film\tgood\n\nein 电影\tbad\n",
    "csv": 'text,label\na film,good\n\n"ein 电影",bad\n',
    "jsonl": '{"text": "a film", "label": "good"}\n\n{"text": "ein 电影", "label": "bad"}\n',
    "json": '\n{"text": "a film", "label": "good"}\n{"text": "ein \\u7535\\u5f71", "label": "bad"}\n',
}


class TestAnyFormat:
    @pytest.mark.parametrize("zipped", ["", ".gz"])
    @pytest.mark.parametrize("suffix", FILES)
    def test_rows_have_their_line_numbers_also_in_gzipped_files(self, write: Write, suffix: str, zipped: str) -> None:
        name = write(f"a.{suffix}{zipped}", FILES[suffix])
        assert rows(name) == [{"text": "a film", "label": "good"}, {"text": "ein 电影", "label": "bad"}]
        assert [str(row.place) for row in rows(name)] == [
            f"{name}:{n}" for n in {"jsonl": (1, 3), "json": (2, 3)}.get(suffix, (2, 4))
        ]

    @pytest.mark.parametrize("suffix", FILES)
    def test_a_byte_order_mark_and_windows_line_ends_are_ignored(self, write: Write, suffix: str) -> None:
        plain, odd = write(f"plain.{suffix}", FILES[suffix]), FILES[suffix].replace("\n", "\r\n")
        assert rows(write(f"odd.{suffix}", b"\xef\xbb\xbf" + odd.encode())) == rows(plain)

    @pytest.mark.parametrize("suffix", [*FILES, "txt", "conll"])
    def test_a_line_that_is_not_utf8_is_reported_with_the_byte(self, write: Write, suffix: str) -> None:
        good = (FILES | {"txt": "one\ntwo\n", "conll": "one O\n\ntwo O\n"})[suffix]
        name = write(f"a.{suffix}", good.encode() + b"ab\xffc\n")
        place = f"{name}:{good.count(chr(10)) + 1}"
        with pytest.raises(UserError, match=f"{place}: byte 3 of the line is not UTF-8 text"):
            rows(name, format="conll" if suffix == "conll" else "auto")

    @pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "txt", "conll"])
    def test_a_line_with_nul_characters_is_no_text(self, write: Write, suffix: str) -> None:
        good = (FILES | {"txt": "one\ntwo\n", "conll": "one O\n\ntwo O\n"})[suffix]
        name = write(f"a.{suffix}", good + "a\0b\n")
        with pytest.raises(UserError, match=rf"{name}:{good.count(chr(10)) + 1}: the line holds NUL characters"):
            rows(name, format="conll" if suffix == "conll" else "auto")

    @pytest.mark.parametrize("content", ["", "\n", "\n\n\n"])
    @pytest.mark.parametrize("suffix", FILES)
    def test_a_file_without_rows_is_an_error(self, write: Write, suffix: str, content: str) -> None:
        with pytest.raises(UserError, match=rf"^a\.{suffix}: there are no rows$"):
            rows(write(f"a.{suffix}", content))

    @pytest.mark.parametrize("suffix", ["tsv", "csv"])
    def test_an_empty_line_is_a_row_only_in_a_file_with_one_column(self, write: Write, suffix: str) -> None:
        assert rows(write(f"one.{suffix}", "text\nfirst\n\nthird\n")) == [{"text": t} for t in ("first", "", "third")]
        delimiter = "," if suffix == "csv" else "\t"
        assert len(rows(write(f"two.{suffix}", f"a{delimiter}b\n1{delimiter}2\n\n3{delimiter}4\n"))) == 2

    @pytest.mark.parametrize("suffix", ["tsv", "csv"])
    def test_a_file_with_only_a_header_has_no_rows(self, write: Write, suffix: str) -> None:
        with pytest.raises(UserError, match=rf"^a\.{suffix}: there are no rows$"):
            rows(write(f"a.{suffix}", FILES[suffix].splitlines()[0]))

    def test_the_first_five_faults_are_listed_and_the_others_counted(self, write: Write) -> None:
        name = write("a.tsv", "a\tb\n" + "".join("\t".join("123456789"[:cells]) + "\n" for cells in (1, 3, 4, 5, 6, 7)))
        with pytest.raises(UserError) as caught:
            rows(name)
        reported = str(caught.value).splitlines()
        assert reported[0] == "a.tsv:2: has 1 cell, expected 2: a, b"
        assert reported[4].startswith("a.tsv:6: ")
        assert reported[5:] == ["and 1 more row that cannot be used"]

    def test_rows_with_the_same_fault_are_one_line(self, write: Write) -> None:
        with pytest.raises(UserError) as caught:
            rows(write("a.tsv", "a\tb\n" + "1\n" * 6 + "1\t2\t3\n"))
        assert str(caught.value).splitlines() == [
            "a.tsv:2: has 1 cell, expected 2: a, b (5 more rows alike)",
            "a.tsv:8: has 3 cells, expected 2: a, b",
        ]

    def test_faults_of_all_files_of_a_split_are_reported_together(self, write: Write) -> None:
        names = [write("a.tsv", "a\tb\n1\n"), write("b.jsonl", "[1]\n")]
        with pytest.raises(UserError, match=r"a\.tsv:2: has 1 cell.*\nb\.jsonl:1: expected a JSON object"):
            read_split("train", names, RowOptions())

    def test_an_unknown_suffix_needs_a_format_and_an_unknown_format_is_rejected(self, write: Write) -> None:
        name = write("a.data", FILES["tsv"])
        with pytest.raises(UserError, match=r"a\.data: expected a name that ends in \.tsv, .*the key 'format' of"):
            rows(name)
        assert len(rows(name, format="tsv")) == 2
        assert rows(write("b.data", FILES["json"]), format="json") == rows(name, format="tsv")
        with pytest.raises(ConfigError, match=r"format: expected one of auto, tsv, .*, found 'tvs'"):
            build(RowOptions, from_dict({"format": "tvs"}))

    def test_a_missing_file_is_named(self, write: Write) -> None:
        with pytest.raises(UserError, match=r"away/a\.tsv: there is no such file or folder"):
            rows("away/a.tsv")

    def test_a_truncated_gzip_file_is_reported(self, write: Write) -> None:
        Path("a.tsv.gz").write_bytes(gzip.compress(FILES["tsv"].encode() * 99)[:-9])
        with pytest.raises(UserError, match=r"the gzip file breaks off after .* with 'gzip -dc a\.tsv\.gz' and"):
            rows("a.tsv.gz")


class TestSeparated:
    @pytest.mark.parametrize("text", ['say "no', '"', '"quoted"', "it's", '""', '"a", b'])
    def test_quotes_are_text_in_tsv(self, write: Write, text: str) -> None:
        assert [row["text"] for row in rows(write("a.tsv", f"text\tlabel\n{text}\tx\nb\ty\n"))] == [text, "b"]

    def test_cells_of_a_tsv_file_that_a_table_has_quoted_are_noted(self, write: Write) -> None:
        name = write("a.tsv", 'text\tlabel\n"say ""no"""\ta\n"a"\t"[""a"", ""b""]"\n')
        with pytest.warns(
            Remark, match=r"a\.tsv: 2 cells in quotes .*, the first on line 2, .* quote: '\"' reads them"
        ):
            assert rows(name)[0]["text"] == '"say ""no"""'
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert rows(name, quote='"')[1]["label"] == '["a", "b"]'
            assert rows(name, quote="")[0]["text"] == '"say ""no"""'
            rows(write("b.tsv", 'text\tlabel\n"" b ""\tx\n""\ty\n'))

    def test_csv_quoting_protects_line_breaks_delimiters_and_quotes_and_lines_are_counted(self, write: Write) -> None:
        name = write("a.csv", 'text,label\n"two\r\nlines, ""both"" one",x\r\n\r\nthird,y\n"a\n\nb",z\nlast,w\n')
        assert [row["text"] for row in rows(name)] == ['two\nlines, "both" one', "third", "a\n\nb", "last"]
        assert lines(name) == [2, 5, 6, 9]

    def test_an_unclosed_quote_is_reported_at_the_line_that_opens_it(self, write: Write) -> None:
        with pytest.raises(UserError, match=r"""^a\.csv:3: the quoting does not close.*need 'quote: ""'"""):
            rows(write("a.csv", 'text,label\na,x\n"b,y\nc,z\n'))
        assert rows("a.csv", quote="")[1]["text"] == '"b'

    def test_delimiter_and_quote_are_configurable(self, write: Write) -> None:
        name = write("a.csv", "text;label\n'a;b';x\n")
        assert rows(name, delimiter=";", quote="'") == [{"text": "a;b", "label": "x"}]
        for key in ("delimiter", "quote"):
            with pytest.raises(UserError, match=f"{key}: expected one character, found '::'"):
                RowOptions(**{key: "::"})

    @pytest.mark.parametrize("suffix", ["tsv", "csv"])
    def test_too_few_and_too_many_cells_are_reported_with_the_columns(self, write: Write, suffix: str) -> None:
        content = "text\tlabel\na\na\tx\ty\nb\tx\n".replace("\t", "\t" if suffix == "tsv" else ",")
        name = write(f"a.{suffix}", content)
        with pytest.raises(UserError) as caught:
            rows(name)
        assert str(caught.value).splitlines() == [
            f"{name}:2: has 1 cell, expected 2: text, label",
            f"{name}:3: has 3 cells, expected 2: text, label",
        ]

    def test_the_options_name_the_columns_of_a_file_without_a_header_and_may_omit_the_last(self, write: Write) -> None:
        name = write("a.tsv", "x\ta\tmore\ny\tb\ny\n")
        assert rows(name, columns=("label", "text"), faulty="skip") == [
            {"label": "x", "text": "a"},
            {"label": "y", "text": "b"},
        ]
        with pytest.raises(UserError, match=r"a\.tsv:3: has 1 cell, expected 2: label, text"):
            rows(name, columns=("label", "text"))

    @pytest.mark.parametrize("header", ["text\tlabel", "Text\tLABEL", "review\tlabel", "text\tlabel\tid"])
    def test_a_header_is_not_a_row_where_the_options_name_the_columns_too(self, write: Write, header: str) -> None:
        name = write("a.tsv", f"{header}\na\tx\t1\nlabel\ttext\t2\n")
        with pytest.raises(UserError, match=r"a\.tsv:1: this line .*leave `columns` out"):
            rows(name, columns=("text", "label"))
        expected = [{"text": "a", "label": "x"}, {"text": "label", "label": "text"}]
        assert rows(name, columns=("text", "label"), faulty="skip") == expected
        assert rows(f"{name}[1:]", columns=("text", "label")) == expected

    @pytest.mark.parametrize("suffix", ["tsv", "csv"])
    def test_the_error_of_an_unusable_header_says_how_to_name_the_columns(self, write: Write, suffix: str) -> None:
        delimiter = "\t" if suffix == "tsv" else ","
        with pytest.raises(UserError, match=rf"a\.{suffix}:1: the column 'a' appears twice; rename one in the file"):
            rows(write(f"a.{suffix}", f"a{delimiter}b{delimiter}a\n1{delimiter}2{delimiter}3\n"))
        with pytest.raises(UserError, match=rf"a\.{suffix}:1: byte 1 .* it should name the columns"):
            rows(write(f"a.{suffix}", b"\xff\n1\n"))
        with pytest.raises(UserError, match=rf"a\.{suffix}:1: there is no column 'txt'\. Did you mean 'text'\?"):
            rows(write(f"a.{suffix}", f"text{delimiter}b\n1{delimiter}2\n"), rename={"review": "txt"})

    def test_cells_keep_their_spaces_and_may_be_empty(self, write: Write) -> None:
        assert rows(write("a.tsv", "text\tlabel\n a \t\n\t\n")) == [
            {"text": " a ", "label": ""},
            {"text": "", "label": ""},
        ]

    def test_a_quote_out_of_place_that_joins_lines_is_noted_with_the_longest_row(self, write: Write) -> None:
        name = write("a.csv", 'text,label\n"a,x\nb,y\nc",z\n"d,x\ne",x\nf,x\n')
        with pytest.warns(Remark, match=r"a\.csv: 2 rows of several lines, the longest from line 2 to 4; .* quote"):
            assert len(rows(name)) == 3
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(rows(name, quote="")) == 6

    @pytest.mark.parametrize("suffix", ["tsv", "csv"])
    def test_a_line_that_names_the_columns_again_is_no_row(self, write: Write, suffix: str) -> None:
        mark = "\t" if suffix == "tsv" else ","
        name = write(f"a.{suffix}", f"text{mark}label\na{mark}x\ntext{mark}label\nb{mark}y\n")
        with pytest.raises(UserError, match=rf"^a\.{suffix}:3: this line names the columns again"):
            rows(name)
        assert [row["text"] for row in rows(name, faulty="skip")] == ["a", "b"]
        with pytest.raises(UserError, match=r":3: this line names the columns again"):
            rows(write(f"a.{suffix}", f"text{mark}label\na{mark}x\nText{mark} LABEL\n"))
        assert rows(write(f"one.{suffix}", "text\ntext\n")) == [{"text": "text"}]  # may be a word

    def test_backslashes_before_quotes_are_named_as_the_reason_and_can_be_read(self, write: Write) -> None:
        name = write("a.csv", 'text,label\nplain,x\n"say \\"no\\", please",y\n')
        with pytest.raises(UserError, match=r"^a\.csv:3: .*; line 3 has a backslash before a quote: .* escape: '\\'$"):
            rows(name)
        assert [row["text"] for row in rows(name, escape="\\")] == ["plain", 'say "no", please']

    def test_a_header_of_many_columns_is_read_in_one_pass(self, write: Write) -> None:
        names = [f"c{n}" for n in range(30_000)]
        name = write("a.csv", ",".join(names) + "\n" + ",".join("1" * 30_000) + "\n1,2\n")
        assert len(rows(name, faulty="skip")[0]) == 30_000
        with pytest.raises(UserError, match=r"a\.csv:3: has 2 cells, expected 30000: c0, .*, c19 and 29,980 more$"):
            rows(name)

    @pytest.mark.parametrize("suffix", ["tsv", "csv"])
    def test_a_line_of_over_a_hundred_thousand_cells_is_refused(self, write: Write, suffix: str) -> None:
        wide = ("\t" if suffix == "tsv" else ",") * 100_000
        with pytest.raises(UserError, match=r"a\..sv:1: has more than 100,000 cells; it should name the columns"):
            rows(write(f"a.{suffix}", wide + "\n"))
        with pytest.raises(UserError, match=r"a\..sv:3: has more than 100,000 cells"):
            rows(write(f"a.{suffix}", f"text\na\n{wide}\n"))

    @pytest.mark.filterwarnings("ignore:.* of several lines")
    @given(st.lists(st.tuples(st.text("ab\"',\n ", max_size=6), st.text("xy,", min_size=1, max_size=3)), max_size=8))
    def test_any_csv_reads_back_with_its_line_numbers(self, cells: list[tuple[str, str]]) -> None:
        written, starts = ["text,label"], []
        for text, label in cells:
            starts.append(len(written) + 1)
            quoted = text.replace('"', '""')
            written += f'"{quoted}","{label}"'.split("\n")
        found = list(
            read_separated("a.csv", [Line(i, line) for i, line in enumerate(written, 1)], RowOptions(), comma=True)
        )
        assert not any(isinstance(row, Fault) for row in found)
        assert [(row["text"], row["label"], row.place.line) for row in found if isinstance(row, Row)] == [
            (text, label, start) for (text, label), start in zip(cells, starts, strict=True)
        ]


class TestJsonLines:
    @pytest.mark.parametrize(
        ("line", "message"),
        [
            ("{text: 1}", "is not JSON: Expecting property name"),
            ('{"text": "a"', "is not JSON: Expecting ',' delimiter"),
            ("[1, 2]", "expected a JSON object with named values"),
            ('[{"text": "a"}]', "begins a list; rows that stand in one list are read from a .json file, or with"),
            ("[", "begins a list; rows that stand in one list"),
            ('{"text": "a", "label": 1, "label": 2}', "the name 'label' stands twice in an object"),
            ('{"text": {"a": 1, "a": 2}}', "the name 'a' stands twice in an object"),
            ("[" * 100_000, "is not JSON"),
            ('{"text": ' + "[" * 101 + "]" * 101 + "}", "has more than 100 lists and objects inside one another"),
        ],
    )
    def test_a_line_that_is_not_an_object_is_reported(self, write: Write, line: str, message: str) -> None:
        with pytest.raises(UserError, match=f"a.jsonl:2: {message}"):
            rows(write("a.jsonl", '{"text": "a"}\n' + line))

    def test_a_list_of_rows_has_the_same_limit_of_depth(self, write: Write) -> None:
        deep = '{"text": ' + "[" * 101 + "]" * 101 + "}"
        with pytest.raises(UserError, match=r"a\.json:2: has more than 100 lists and objects inside one another"):
            rows(write("a.json", f'[{{"text": "a"}}, {deep}]'))

    def test_cells_keep_their_types(self, write: Write) -> None:
        (row,) = rows(write("a.jsonl", '{"a": 1, "b": 2.5, "c": ["x"], "d": null, "e": {"f": true}}'))
        assert row == {"a": 1, "b": 2.5, "c": ["x"], "d": None, "e": {"f": True}}


class TestFormatDetection:
    @pytest.mark.parametrize("suffix", ["csv", "tsv"])
    @pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
    def test_the_delimiter_is_detected_from_the_header(self, write: Write, suffix: str, delimiter: str) -> None:
        assert rows(write(f"a.{suffix}", f"text{delimiter}label\na b{delimiter}x\n")) == [{"text": "a b", "label": "x"}]

    def test_quoting_follows_the_detected_delimiter(self, write: Write) -> None:
        assert rows(write("a.csv", 'text;label\n"a; b";x\n')) == [{"text": "a; b", "label": "x"}]
        assert rows(write("b.tsv", 'text;label\n"a; b";x\n')) == [{"text": "a; b", "label": "x"}]

    def test_the_usual_or_a_given_delimiter_takes_precedence(self, write: Write) -> None:
        assert rows(write("a.csv", "a;b,c\n1;2,3\n")) == [{"a;b": "1;2", "c": "3"}]
        assert rows(write("b.csv", "a;b\n1;2\n"), delimiter=",") == [{"a;b": "1;2"}]
        assert rows(write("c.tsv", "text\na, b; c\n")) == [{"text": "a, b; c"}]

    def test_without_a_header_another_delimiter_is_suggested(self, write: Write) -> None:
        with pytest.raises(
            UserError, match=r"a\.csv:1: has 1 cell, expected 2: text, label; if they are separated by ';', "
        ):
            rows(write("a.csv", "good film;x\n"), columns=("text", "label"))
        with pytest.raises(
            UserError, match=r"b\.csv:1: has 1 cell, expected 2: text, label; if they are separated by a tab"
        ):
            rows(write("b.csv", "good film\tx\n"), columns=("text", "label"))

    @pytest.mark.parametrize("suffix", ["txt", "csv", "tsv", "json"])
    def test_json_lines_are_detected_from_their_first_line(self, write: Write, suffix: str) -> None:
        name = write(f"a.{suffix}", '{"text": "a, b"}\n{"text": "c"}\n')
        assert rows(name) == [{"text": "a, b"}, {"text": "c"}]

    def test_a_given_format_takes_precedence(self, write: Write) -> None:
        assert rows(write("a.txt", '{"text": "a"}\n'), format="text") == [{"text": '{"text": "a"}'}]
        assert rows(write("b.txt", "{curly} text\n")) == [{"text": "{curly} text"}]


class TestWordColumns:
    CONLL = "-DOCSTART- -X- O\n\nEU NNP I-ORG\nrejects VBZ O\n\n\nPeter\tNNP  I-PER\n-DOCSTART- -X- O\nBonn NNP I-LOC"

    def test_sentences_have_the_first_columns_and_the_last_under_the_given_names(self, write: Write) -> None:
        name = write("a.txt", self.CONLL)
        assert rows(name, format="conll") == [
            {"token": ["EU", "rejects"], "tag": ["I-ORG", "O"]},
            {"token": ["Peter"], "tag": ["I-PER"]},
            {"token": ["Bonn"], "tag": ["I-LOC"]},
        ]
        assert lines(name, format="conll") == [3, 7, 9]
        assert rows(name, format="conll", columns=("word", "pos", "tag"))[0]["pos"] == ["NNP", "VBZ"]

    @pytest.mark.parametrize("name", ["a.conll", "a.bio", "a.conll.gz", "a.txt"])
    def test_the_format_is_detected_from_the_name_or_a_document_separator(self, write: Write, name: str) -> None:
        content = self.CONLL.replace("\n", "\r\n").encode()
        assert rows(write(name, content))[0] == {"token": ["EU", "rejects"], "tag": ["I-ORG", "O"]}

    def test_comments_before_a_sentence_are_skipped_but_a_number_sign_is_a_word(self, write: Write) -> None:
        comments = "# newdoc\n\n# sent_id = 1\n# text = It is\n"
        name = write("a.conll", f"{comments}It\tPRP\tO\n#\tSYM\tO\n\n# id = 2\n#\tSYM\tO\n#now\tX\tB-TAG\n")
        assert [row["token"] for row in rows(name)] == [["It", "#"], ["#", "#now"]]
        assert [row["token"] for row in rows(write("b.conll", "# id = 1\nIt O\n\n# O\n1 O\n"))] == [["It"], ["#", "1"]]
        assert rows(write("c.conll", "#\tO\n"))[0]["token"] == ["#"]

    def test_a_word_may_be_an_ideographic_space_or_with_a_delimiter_any_space(self, write: Write) -> None:
        assert rows(write("a.txt", "　 O\n北 B-LOC\n"), format="conll")[0]["token"] == ["　", "北"]
        assert rows(write("b.txt", "New York\tB-LOC\n \tO\n"), format="conll", delimiter="\t")[0]["token"] == [
            "New York",
            " ",
        ]

    def test_an_incomplete_line_is_reported_and_drops_its_whole_sentence(self, write: Write) -> None:
        name = write("a.txt", "EU B-ORG\nrejects\nit O\n\nPeter B-PER\n")
        with pytest.raises(UserError, match=r"a\.txt:2: has 1 column, expected 2: .*; `columns` names those"):
            rows(name, format="conll")
        split = read_split("train", [name], RowOptions(format="conll", faulty="skip"))
        assert [row["token"] for row in split.rows] == [["Peter"]]
        assert split.skipped == 1


class TestPlain:
    def test_every_line_is_a_row_even_an_empty_one(self, write: Write) -> None:
        name = write("a.txt", "one\ttwo\n\n three ")
        assert [(row["text"], row.place.line) for row in rows(name)] == [("one\ttwo", 1), ("", 2), (" three ", 3)]


def test_rows_and_faults_and_skipped_rows_are_yielded_in_order(write: Write) -> None:
    found = list(read_rows(write("a.tsv", "a\tb\n1\t2\n3\n5\t6\n"), RowOptions(skip={"a": ("5",)})))
    assert [type(item) for item in found] == [Row, Fault, type(None)]


def questions(write: Write, **more: Any) -> list[Row]:
    entry = {"id": "a", "question": "what?", **more}
    return rows(write("a.json", json.dumps({"data": [{"paragraphs": [{"context": "it was good", "qas": [entry]}]}]})))


def test_a_question_without_answers_is_unlabeled_and_an_empty_list_means_unanswerable(write: Write) -> None:
    assert "answers" not in questions(write)[0]
    assert questions(write, answers=[])[0]["answers"] == {"text": [], "answer_start": []}


@pytest.mark.parametrize(
    "answers",
    [[{"text": "good", "answer_start": 7}], {"text": ["good"], "answer_start": [7]}, {"text": ["good"]}, ["good"]],
)
def test_answers_are_a_list_of_objects_or_an_object_of_lists(write: Write, answers: Any) -> None:
    assert questions(write, answers=answers)[0]["answers"] == {"text": ["good"], "answer_start": [7]}


@pytest.mark.parametrize("answers", ["good", 5, {"text": "good"}, [{"text": "good", "answer_start": "7"}], [{}]])
def test_malformed_answers_are_a_fault(write: Write, answers: Any) -> None:
    with pytest.raises(UserError, match="question 1: "):
        questions(write, answers=answers)


def test_an_unreadable_line_drops_the_whole_quoted_row(write: Write) -> None:
    name = write("a.csv", b'a,b\n1,"x\n\xff\ny"\n3,4\n')
    assert rows(name, faulty="skip") == [{"a": "3", "b": "4"}]
    assert rows(write("b.csv", b"text\ngood\nb\xffad\nfine\n"), faulty="skip") == [{"text": "good"}, {"text": "fine"}]


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_lone_carriage_returns_as_line_ends_are_reported(write: Write, name: str) -> None:
    delimiter = "\t" if name == "a.tsv" else ","
    source = write(name, f"text{delimiter}label\ra film{delimiter}good\r")
    with pytest.raises(UserError, match=r"a\.[tc]sv:1: lines end with a carriage return alone.*tr '\\r' '\\n' < FILE"):
        rows(source)


def test_true_false_and_null_are_spelled_as_in_json(write: Write) -> None:
    name = write("a.jsonl", '{"label": true}\n{"label": false}\n{"label": null}\n')
    assert [row.text("label") for row in rows(name)[:2]] == ["true", "false"]
    found = rows(name, values={"label": {"true": "yes"}}, skip={"label": ("null",)})
    assert [row["label"] for row in found] == ["yes", False]


def test_a_number_of_thousands_of_digits_is_a_fault(write: Write) -> None:
    with pytest.raises(UserError, match=r"a\.jsonl:1: is not JSON"):
        rows(write("a.jsonl", '{"a": ' + "1" * 5000 + "}\n"))
