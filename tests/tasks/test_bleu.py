"""BLEU and chrF: cases worked out by hand, in every script, and with several references."""

from __future__ import annotations

import json
import warnings
from importlib.util import find_spec

import numpy as np
import pytest
from support.toys import TOKENIZER

from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError
from tasks.downstream.bleu import bleu, chrf, signature, tokenizer_for
from tasks.downstream.scoring import score_answers
from tasks.downstream.translate import Translate

# A sentence of each script, and the tokenizer that counts its words, or its characters where it has no spaces.
SCRIPTS = {
    "The cat sat on the mat.": "13a",
    "Кошка сидит на ковре.": "13a",
    "나는 고양이를 좋아합니다.": "13a",
    "मुझे बिल्ली पसंद है और कुत्ता भी।": "13a",
    "我们在这里工作。": "zh",
    "Paddle 上的模型训练得很快。": "zh",
    "ねこがすきです。": "char",
    "東京に行きたいです。": "char",
    "カメラを買う。": "char",
    "ฉันรักแมวมาก": "char",
    "ຂ້ອຍມັກແມວຫຼາຍ": "char",
    "ကျွန်တော်ကြောင်ကြိုက်တယ်": "char",
    "ខ្ញុំចូលចិត្តឆ្មា": "char",
}


def test_bleu_is_the_geometric_mean_of_the_n_gram_precisions() -> None:
    # 5 of 6 words, 4 of 5 bigrams, 3 of 4 trigrams and 2 of 3 4-grams match.
    assert bleu(["the cat sat on the mat"], ["the cat sat on the rug"]) == pytest.approx(
        (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** (1 / 4)
    )


def test_bleu_penalizes_short_hypotheses() -> None:
    assert bleu(["a b c d e f"], ["a b c d e"]) == pytest.approx(np.exp(1 - 6 / 5))


def test_references_that_are_too_short_for_bleu_are_said_and_others_are_not() -> None:
    with pytest.warns(Remark, match=r"bleu is 0 whatever is written: .* no reference has four \(tokenizer 13a\)"):
        assert bleu(["rot blau", ("rot", "ein Rot")], ["rot blau", "rot"]) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert bleu(["rot blau", "rot blau rot blau"], ["rot blau", "gelb"]) == 0
        assert bleu(["我们工作"], ["我们工作"]) == 1


def test_bleu_of_chinese_counts_characters() -> None:
    assert bleu(["我们在这里工作"], ["我们在这里吃饭"]) == pytest.approx((5 / 7 * 4 / 6 * 3 / 5 * 2 / 4) ** (1 / 4))


@pytest.mark.parametrize("text", SCRIPTS)
def test_a_translation_into_any_script_that_equals_its_reference_scores_one(text: str) -> None:
    assert bleu([text], [text]) == pytest.approx(1)
    assert tokenizer_for([text]) == SCRIPTS[text]


def test_a_partly_right_translation_without_spaces_scores_between_nothing_and_one() -> None:
    assert 0.2 < bleu(["ねこがとてもすきです。"], ["ねこがすきです。"]) < 0.9


def test_names_in_another_script_do_not_change_the_tokenizer() -> None:
    assert tokenizer_for(["the word 猫 means cat", "a cat"]) == "13a"
    assert tokenizer_for(["他在 Microsoft 工作"]) == "zh"


def test_the_given_tokenizer_is_used_instead() -> None:
    assert bleu(["ねこがすきです。"], ["ねこがすきです。"], "none") == 0  # one word: sacreBLEU needs four
    assert bleu(["a,b"], ["a , b"], "char") < bleu(["a,b c d"], ["a , b c d"], "13a")


def test_the_best_matching_reference_counts_for_each_n_gram() -> None:
    references = ["the cat sat on the mat", "a cat was sitting on the rug"]
    assert bleu([references], [references[1]]) == pytest.approx(1)
    assert bleu([references[:1]], [references[1]]) < 0.5
    assert chrf([references], [references[1]]) == pytest.approx(1)


def test_texts_may_have_different_numbers_of_references() -> None:
    targets = [["one two three four", "1 2 3 4"], ["five six seven eight"], "nine ten eleven twelve"]
    assert bleu(targets, ["1 2 3 4", "five six seven eight", "nine ten eleven twelve"]) == pytest.approx(1)
    assert "nrefs:var" in signature("bleu", targets)


def test_the_signature_says_how_the_score_was_computed() -> None:
    found = signature("bleu", ["ねこがすきです。"])
    assert found.startswith("nrefs:1|case:mixed|eff:no|tok:char|smooth:exp|version:")
    assert "tok:13a" in signature("bleu", ["a cat"])
    assert "tok:zh" in signature("bleu", ["a cat"], "zh")
    assert "nc:6|nw:0" in signature("chrf", [["a cat", "the cat"]])
    assert "nrefs:2" in signature("chrf", [["a cat", "the cat"]])


def test_chrf_compares_character_n_grams() -> None:
    assert chrf(["abc"], ["abc"]) == pytest.approx(1)
    # F2 of 2/3 of the characters, 1/2 of the bigrams and none of the trigrams.
    assert chrf(["abc"], ["abd"]) == pytest.approx((2 / 3 + 1 / 2 + 0) / 3, abs=0.01)


class TestReferencesOfRows:
    """Where the references of a row stand: in one column, in a list, or in several columns."""

    def test_further_columns_hold_further_references(self) -> None:
        task = Translate(references=("other", "third"))
        row = Row({"source": "x", "target": "a cat", "other": "one cat", "third": None})
        assert task.target(row) == ("a cat", "one cat")
        assert (
            score_answers(task, [row], [{"translation": "one cat"}])["bleu"]
            == score_answers(task, [row], [{"translation": "a cat"}])["bleu"]
        )

    def test_a_cell_may_hold_a_list_of_references(self) -> None:
        assert Translate().target(Row({"target": ["a cat", "one cat"]})) == ("a cat", "one cat")
        for spelled in ('["a cat", "", "one cat"]', "['a cat', 'one cat']"):  # as a CSV file has it
            assert Translate().target(Row({"target": spelled})) == ("a cat", "one cat")
            assert Translate().reference(Row({"target": spelled})) == "a cat"
        for text in ("[applause]", "[1, 2]", '["open'):
            assert Translate().target(Row({"target": text})) == text

    def test_a_row_without_any_reference_is_refused(self) -> None:
        for cell in ("", " ", [], [""]):
            with pytest.raises(UserError, match="column 'target': the translation is empty"):
                Translate().target(Row({"target": cell}))

    def test_a_missing_column_of_references_is_named(self) -> None:
        with pytest.raises(UserError, match="there is no column 'other'"):
            Translate(references=("other",)).target(Row({"target": "a cat"}))

    def test_training_learns_the_first_reference(self) -> None:
        one, several = (
            Translate().training_example(Row({"source": "red", "target": cell}), TOKENIZER)
            for cell in ("blau rot", ["blau rot", "rot"])
        )
        assert several.samples[0].decoder_ids.tolist() == one.samples[0].decoder_ids.tolist()

    def test_the_scores_carry_a_signature_for_each_metric(self) -> None:
        rows = [Row({"source": "x", "target": "ねこがすきです。"})]
        signatures = Translate().signatures(rows)
        assert signatures.keys() == {"bleu", "chrf"}
        assert "tok:char" in signatures["bleu"]
        assert "tok:ja-mecab" not in json.dumps(signatures)


@pytest.mark.skipif(find_spec("MeCab") is not None, reason="the package is installed")
def test_a_tokenizer_whose_package_is_missing_is_named_before_training() -> None:
    with pytest.raises(UserError, match=r"pip install 'sacrebleu\[ja\]'"):
        Translate(bleu_tokenizer="ja-mecab").check_examples([], TOKENIZER)
    with pytest.raises(UserError, match=r"pip install 'sacrebleu\[ja\]'"):
        Translate().decoding_with({"bleu_tokenizer": "ja-mecab"}, TOKENIZER)


def test_a_finished_model_can_be_scored_with_another_tokenizer() -> None:
    task = Translate().decoding_with({"bleu_tokenizer": "char"}, TOKENIZER)
    assert "tok:char" in task.signatures([Row({"target": "a cat"})])["bleu"]
    assert task.metric("bleu")(["rote"], ["rote"]) == 1
