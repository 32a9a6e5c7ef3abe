"""Sentence splitting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.text.sentences import detect_language, split_sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rained.", "Nobody came."],
        ["Mr. Smith met Dr. Jones at 3.5 p.m. on Jan. 5 in the garden.", "They talked."],
        ["J. R. R. Tolkien wrote it.", "It sold well."],
        ["He worked for Acme Inc. until 1990.", "Then he left."],
        ["She lived in the U.S. for years.", "It was cold."],
        ['"Why?" he asked.', '"Because."', "Nobody spoke."],
        ["Prices rose by 3.14 per cent (see Fig. 3).", "Wages did not."],
        ["Wait... What was that?", "Nothing!"],
        ["Was it true?!", "Perhaps."],
        ["He used tools, e.g. Paddle, i.e. a library.", "Fine."],
        ["See Smith et al. 2019 for more.", "Others differ."],
        ["The clause (see No. 5 of vol. 3) was struck (by Gen. Grant).", "It was long."],
        ["He lived in the U.S.", "The house was small."],
        ["“Stop!”", "The door opened."],
        ["1. First things first.", "Then came I.", "But no one saw me."],
        ["1. It is 12.", "He is 3.", "So are we."],
        ["1. First item.", "2. Second item.", "• One is here.", "★ Two is done.", "– How are you?", "– Fine."],
        ["Plan B.", "Nobody likes it.", "See Figs. 2 and 3 and Eqs. (1) and (2).", "Yes."],
        ["It is here.", "iPhones ring.", "eBay is large.", "mRNA is not."],
        [
            "Roe v. Wade came c. 1970.",
            "Pvt. Ryan a.k.a. Jim (b. 1920) met Cpl. Upham and Messrs. A. and Mmes. B.",
            "So.",
        ],
        ["He lives on Main St.", "She has 6 ft.", "It is near St. Paul and Ft. Worth (tel. 555, ext. 12)."],
        ["यह अच्छा है।", "वह बुरा है॥", "هل هذا جيد؟", "یہ اچھا ہے۔", "Yes."],
        ["It is long.\u200b", "It is slow.\ufeff", "He left."],
    ],
)
def test_english_text_is_split_into_its_sentences(sentences: list[str]) -> None:
    found = split_sentences(" ".join(sentences), "en")
    if "Wait..." in sentences[0]:  # an ellipsis before a capital ends a sentence
        sentences = ["Wait...", "What was that?", "Nothing!"]
    assert found == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["今天下雨。", "没有人来！", "为什么？"],
        ["他说：“我来了。”", "然后走了。"],
        ["大门开了；", "他走进去……", "再没有出来。"],
        ["价格是3.5元。", "很便宜！"],
        ["“你好。”他说。", "她喊道：“快走！”", "没有人动。"],
        ["《你好！》，是一本书。", "（真的？）", "是。"],
        ["他来了。 ，然后走了。", "“好！” 》是。"],
    ],
)
def test_chinese_text_is_split_into_its_sentences(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), "zh") == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["It is long.[1]", "It is slow.[2]", "Anna sings."],
        ["It is long.[12][13]", "It is slow. [note 1]", "Anna sings.[a]", "No.[citation needed]", "Yes. [2]"],
        ["It is long.(3)", "It is slow.", "(3) Anna sings."],  # after a space, the number begins a list
        ["It is long.¹²", 'He said: "It is."[3]', "(It is.[4])", "It was.†"],
        ["It is long.[1]:20", "It is slow.[2]:5", "Anna sings."],
        ["Great! 😀", "Loved it. 👍", "Go."],
        ["Great!👍🏽", "Loved it. 👨‍👩‍👧‍👦", "Go ❤️ now. ❤️", "Is it? 🇩🇪", "Done‼️", "First.1️⃣", "End. 😀"],
        ["Great! :)", "Loved it. <3", "Go :) now."],
        ["Mr.[1] Smith met Dr.² Jones at 3.5 p.m.[3] on Jan. 5.[4]", "See p.[5] 6 and Fig.[6] 7."],
        ["She lived in the U.S.[2] for years.", "He left.", "[T]he door fell shut."],
        [
            "It is long.[i]",
            "It is slow.[p. 5]",
            "A.[N 1]",
            "No.[lower-alpha 1]",
            "So.[†]",
            "Is it?[who?]",
            "It is.[[1]]",
        ],
        ["It is long.[1]: 5", "It is slow.[2]:5–7", "He said.^1", 'It "is."12', "It was.⁽¹⁾", "Yes."],
        ["It is long.1", "It is slow.23", "See fig.3 Smith made.", "It is 3.5 He said.", "Yes."],
    ],
)
def test_footnotes_superscripts_and_emoji_belong_to_the_sentence_before_them(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences), "en") == sentences


def test_a_footnote_or_an_emoji_ends_a_sentence_also_without_a_space() -> None:
    found = split_sentences("It is long.[1]It is slow.😀Go.[2]com is v3.5.[3]or", "en")
    assert found == ["It is long.[1]", "It is slow.😀", "Go.[2]com is v3.5.[3]or"]


@pytest.mark.parametrize(
    "sentences",
    [
        ["我们看《摔跤吧！爸爸》好吗？", "〈你好！世界〉是歌。", "他知道《你好！》是书。"],
        ["他（真的！）走了。", "他走了（真的！我看见的。）。", "（他走了。她来了。）", "【快讯】下雨了。"],
        ["我看「摔跤吧！爸爸」好嗎？", "他提出了“为什么？”的问题。"],
        ['"这是对的。"他说。', "他走了。", '"你好。"她说。', "'好！'他说。", '他买了27"的显示器。', '"是吗？"他问。'],
        ["「你好。」他問。", "「是的。」李老師笑著說。", "『好！』約翰．史密斯喊道。", "「對。」", "他知道。"],
        ["〝好。〞她答。", "“走吧。”她回过头来轻声地对我说。", "“对。”", "小说家走了。", "“A。”", "问题很多。"],
        ["「走！」", "她說：「好。」", "沒有人動。"],
        ["天气好．", "去公园．", "回家．"],
        [
            "价格是3．5元．",
            "价格是３．５元．",
            "很便宜．",
            "Ｊ．Ｋ．罗琳写了书．",
            "史蒂芬．金和约翰．里德．史密斯也写了．",
        ],
        ["１．苹果．", "2．梨．", "三．桃．"],
        ["天气好.", "去公园!", "回家;", "好吗?", "约翰.史密斯用Node.js写书.", "看http://a.cn/?q=1"],
        ["天气好｡", "去公园‼️", "回家｡"],
        ["他走了……", "再没回来…", "“我……我不知道。”他说。", "苹果、梨……等等。", "我……我去。"],
        ["去ｗｗｗ．ａ．ｃｏｍ看看．", "一九九六．四．五下雨．", "梅赛德斯．奔驰走了．"],
        ["例５．求解方程．", "图2．系统结构．", "第一章．开始．"],
        ["目的：☆提供舞台；", "☆调动媒体。", "要求(甲);", "看www.绿色行.com和中文.CN。", 'f("a");f("b");'],
        ["“有吗？”", "民兵连长告诉他：只多不少。", "“晕车！”", "这提醒怎么没到？", "“有人。”", "没有人回答。"],
        ["“已处罚。”", "另据《新京报》报道，又扣押了。", "“我累。”现任赢洲街道东升居委会副主任的郭瑞容说。"],
        ["“我不去。”是真的吗？", "“好。”", "是的。", "“为什么？”和“怎么办？”是两个问题。", "“走！”这句话很短。"],
        ["“我们非常关注这个非常重要的公务车市场……", "我们是要为客户提供新的价值，而不是推销产品。”", "他走了。"],
        ["今天很长。[1]", "明天很慢。[2][3]", "后天¹也是。²"],
        ["太好了！😀", "我喜欢。👍🏽", "走吧。👨‍👩‍👧"],
        ["很長。[註1]", "很短。[來源請求]", "太好了！[微笑]", "走吧。[doge]", "[]是空的。", "【快讯】下雨。"],
        [
            "「快走！」他催促著。",
            "“好！”李四回应。",
            "“是的。”",
            "报道称，他走了。",
            "『不！』她低語。",
            "“好。”",
            "他点点头。",
        ],
        ["“都走了。”公司负责人透露，“没有人。”"],
        ["“快走！”", "他的建议很好。", "“好！”", "评论家来了。", "“不！”", "这是简称。"],
    ],
)
def test_marks_inside_chinese_brackets_quotes_numbers_and_names_end_no_sentence(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences), "zh") == sentences


def test_a_bracket_that_is_never_closed_hides_no_sentence_end() -> None:
    assert split_sentences("我们看《摔跤吧！爸爸好吗？走。", "zh") == ["我们看《摔跤吧！", "爸爸好吗？", "走。"]
    long = "（" + "他走了。" * 100 + "）"
    assert len(split_sentences(long, "zh")) == 100


@given(st.text(alphabet=st.sampled_from("AB中文。！？.\"'《》「」“”（）[1]…．3;😀\u200d 说的"), max_size=60))
def test_chinese_text_with_any_brackets_loses_no_character(text: str) -> None:
    assert "".join("".join(split_sentences(text, "zh")).split()) == "".join(text.split())


@given(st.text(alphabet=st.sampled_from("ABab .!?\"')(。！？”…；中文\n1,"), max_size=60), st.sampled_from(["en", "zh"]))
def test_no_character_other_than_white_space_is_lost(text: str, language: str) -> None:
    joined = "".join(split_sentences(text, language))
    assert "".join(joined.split()) == "".join(text.split())


@given(st.text(max_size=60), st.sampled_from(["en", "zh"]))
def test_no_sentence_is_empty(text: str, language: str) -> None:
    assert all(sentence.strip() == sentence != "" for sentence in split_sentences(text, language))


def test_the_language_is_detected_from_the_characters() -> None:
    assert detect_language("今天天气很好, OK") == "zh"
    assert detect_language("The word 中文 means Chinese, and that is all there is to say.") == "en"
    assert detect_language("") == "en"
    assert detect_language("\U00020000\U0002a6d6 rare") == "zh"  # from later Unicode blocks
    assert detect_language("ねこがすきです。ﾈｺ") == "zh"
    assert detect_language("고양이") == "en"


def test_sentences_of_a_script_without_spaces_end_within_english_text_too() -> None:
    found = split_sentences("It says 你好！ She left.我喜欢。「是吗？」Yes.", "en")
    assert found == ["It says 你好！", "She left.我喜欢。", "「是吗？」", "Yes."]


def test_a_list_number_may_follow_leading_white_space() -> None:
    assert split_sentences(" \u3000 1. It is 12. We are 3.", "en") == ["1. It is 12.", "We are 3."]


def test_a_long_text_with_many_numbers_takes_linear_time() -> None:
    text = "He is 12. " * 100_000  # quadratic time would be far longer
    assert split_sentences(text, "en") == ["He is 12."] * 100_000


@pytest.mark.parametrize("unit", ["（", "《好！", '"', "“好。", "。[1] ", "！ 😀", "一．", "好》", "[1]", "…… "])
def test_a_long_run_of_brackets_and_marks_takes_linear_time(unit: str) -> None:
    text = unit * 20_000  # quadratic time would be many minutes
    for language in ("en", "zh"):
        assert "".join("".join(split_sentences(text, language)).split()) == "".join(text.split())


def test_a_long_run_of_punctuation_takes_linear_time() -> None:
    text = "Title " + "." * 200_000 + "12 " + "。" * 200_000 + "x"  # quadratic time would be many minutes
    for language in ("en", "zh"):
        assert "".join(split_sentences(text, language)).replace(" ", "") == text.replace(" ", "")
