"""Pages with addresses: which are dropped by them, and how their hosts are counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents import put

from ernie.data.raw import Fields, Place, RawDocument, ReadOptions
from ernie.errors import UserError
from ernie.text.train import train_wordpiece
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.address import Url
from pretrain.corpus.clean.base import Rejected
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.hosts import MOST_HOSTS, OTHERS, add_hosts, host_of


def dropped(filter_: Url, url: str) -> str:
    """Why a page with this address is dropped, "" if it is kept."""
    filter_.prepare()
    found = filter_(RawDocument(Place("in", 1), "text", url=url))
    return found.reason if isinstance(found, Rejected) else ""


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("https://example.com/", "blocked"),
        ("http://www.Example.com:8080/a?b=c", "blocked"),
        ("https://shop.example.com/a", "blocked"),
        ("https://user:secret@example.com", "blocked"),
        ("//example.com/a", "blocked"),
        ("example.com", "blocked"),
        ("https://example.com.", "blocked"),
        ("https://notexample.com/", ""),
        ("https://example.com.org/", ""),
        ("https://com/", ""),
        ("https://news.org/sport/ball/1.html", "blocked"),
        ("https://www.news.org/sport/", "blocked"),
        ("https://news.org/sports/", ""),
        ("https://news.org/a/sport", ""),
        ("https://news.org/Casino-online", "word in address"),
        ("https://casino.net", "word in address"),
        ("https://casinos.net", ""),
        ("https://film.org/see?v=1", "blocked"),
        ("https://film.org/see?v=2", ""),
        ("https://film.org/see", ""),
        ("https://www.co.uk/", "blocked"),
        ("https://other.co.uk/", ""),
        ("https://example.net/out?to=http://example.com", ""),
        ("example.com/a//b", "blocked"),
        ("https://xn--fsqu00a.xn--fiqs8s/a", "blocked"),
        ("https://例子.中国/", "blocked"),
        ("https://x.cn/%E8%B5%8C%E5%8D%9A%E7%BD%91", "word in address"),
        ("https://x.cn/%E5%8D%9A%E5%AE%A2", ""),
        ("", ""),
        ("http://[", ""),
        ("http://" + "a." * 100_000, ""),
        ("mailto:casino@x", "word in address"),
    ],
)
def test_hosts_with_all_below_them_folders_queries_and_words_are_blocked(url: str, reason: str) -> None:
    block = ["example.com", "https://news.org/sport/", "film.org/see?v=1", "www.co.uk", "例子.中国"]
    assert dropped(Url(block=block, words=["CASINO", "赌博"]), url) == reason


def test_lists_may_be_compressed_have_comments_and_be_of_any_size(tmp_path: Path) -> None:
    import gzip

    many = [f"host-{number}.example" for number in range(5000)]
    few = "# bad ones\n\n*.bad.com  # all of it\n.worse.com\nworst.com/x\n0.0.0.0 hosts.com\n127.0.0.1 localhost\n"
    put(tmp_path / "few.txt", few + "deep.com/#!/page\ndeep.com/out?u=http://x.org\n")
    (tmp_path / "many.txt.gz").write_bytes(gzip.compress("\n".join(many).encode()))
    filter_ = Url(files=[str(tmp_path / "few.txt"), str(tmp_path / "many.txt.gz")])
    for url in ("bad.com", "http://a.bad.com", "http://worse.com/y", "http://worst.com/x/y", f"http://{many[4321]}/a"):
        assert dropped(filter_, url) == "blocked"
    for url in ("http://hosts.com", "https://deep.com/out?u=http://x.org", "https://deep.com/#!/page"):
        assert dropped(filter_, url) == "blocked"
    for url in (
        "http://good.com",
        "http://worst.com/y",
        "http://host-5000.example",
        "http://deep.com/",
        "http://x.org",
    ):
        assert dropped(filter_, url) == ""


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "block, files, words: expected at least one of them"),
        ({"words": ["two words"]}, "words: 'two words' is not one word"),
        ({"block": ["not a host"]}, "block: expected a host such as example.com, or an address, found 'not a host'"),
        ({"block": ["/path"]}, "block: expected a host"),
        ({"block": ["com"]}, "block: expected a host such as example.com, or an address, found 'com'"),
        ({"block": ["http://["]}, "block: expected a host"),
        ({"files": ["adblock.txt"]}, r"adblock\.txt:1: expected a host .* found '\[Adblock Plus 2\.0\]'"),
        ({"files": ["empty.txt"]}, r"files: empty\.txt: blocks nothing; expected a host or an address on each line"),
        ({"files": ["wrong.txt"]}, r"files: wrong\.txt:2: expected a host such as example.com.*found 'no host.here'"),
        ({"files": ["missing.txt"]}, r"missing\.txt: cannot be read: No such file"),
    ],
)
def test_what_blocks_nothing_is_an_error(
    keys: dict, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(Path("empty.txt"), "# nothing\n")
    put(Path("wrong.txt"), "a.com\nno host.here\n")
    put(Path("adblock.txt"), "[Adblock Plus 2.0]\n||a.com^\n")
    with pytest.raises(UserError, match=message):
        Url(**keys).prepare()


@settings(max_examples=200)
@given(st.text(max_size=30) | st.text("ab./:?#[]@%中 w", max_size=30))
def test_any_text_has_a_host_or_none_and_what_blocks_itself_blocks_it(text: str) -> None:
    found = host_of(text)
    assert found.isascii()
    assert not found or ("." in found and "/" not in found and found == found.lower())
    try:
        filter_ = Url(block=[text])
        filter_.prepare()
    except UserError:
        return
    assert dropped(filter_, text.removeprefix("*.").removeprefix(".")) == "blocked"


def test_hosts_are_counted_one_by_one_up_to_a_bound() -> None:
    counts: Counter[str] = Counter()
    add_hosts(counts, {f"h{number}": 2 for number in range(MOST_HOSTS)})
    add_hosts(counts, {"new": 3, "h7": 1, "newer": 1})
    assert (counts["h7"], counts["new"], counts[OTHERS]) == (3, 0, 4)
    assert counts.total() == 2 * MOST_HOSTS + 5


def test_a_build_counts_the_hosts_of_what_it_keeps_and_drops_blocked_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    train_wordpiece(["the boat is slow"], vocab_size=60, lowercase=True, folder=Path("tokenizer"))
    urls = ["https://a.org/1", "http://www.a.org/2", "https://b.org", None, 5, "https://bad.com/x"]
    rows = [{"body": f"The boat {n} is slow.", "meta": {"at": url}} for n, url in enumerate(urls)]
    Path("in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = ReadOptions(fields=Fields(text="body", url="meta.at"))
    blocked = [Url(block=["bad.com"])]
    config = CorpusConfig(["in.jsonl"], Path("tokenizer"), "en", [], held_out=0, clean=blocked, read=read)
    report = build_corpus(config, "corpus")
    assert report.counts.hosts == {"a.org": 2, "b.org": 1}
    assert report.counts.dropped == {"url: blocked": 1}
    assert "2; documents of the most frequent: a.org 2, b.org 1" in report.table()
    assert json.loads(Path("corpus/corpus.json").read_text())["report"]["hosts"] == {"a.org": 2, "b.org": 1}


def test_a_list_that_no_address_is_compared_with_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    train_wordpiece(["the boat is slow"], vocab_size=60, lowercase=True, folder=Path("tokenizer"))
    Path("in.jsonl").write_text('{"text": "The boat is slow.", "link": "https://bad.com"}\n')
    blocked = [Url(block=["bad.com"])]
    for name, told in (("url", True), ("link", False)):
        read = ReadOptions(fields=Fields(url=name))
        config = CorpusConfig(["in.jsonl"], Path("tokenizer"), "en", [], held_out=0, clean=blocked, read=read)
        if told:
            assert (
                "no document that is kept has an address, by which the filter url drops"
                in build_corpus(config, name).table()
            )
        else:
            with pytest.raises(UserError, match=r"no document of the input is kept \(1 url: blocked\)"):
                build_corpus(config, name)
