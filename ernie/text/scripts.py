"""Character ranges of scripts, for use in the brackets of a regular expression, and patterns made of them."""

import re

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"  # Chinese characters, in any language
KANA = "\u3041-\u3096\u30a1-\u30fa\uff66-\uff9d"
THAI = "\u0e01-\u0e3a\u0e40-\u0e4e"  # letters, vowels and tones
NO_SPACES = f"\u3001-\u30ff\uff00-\uffef{HAN}"  # Chinese, Japanese, and their punctuation
# The characters used to transliterate foreign names into simplified Chinese.
TRANSLITERATION = (
    "阿埃艾爱安昂奥巴白拜班邦保鲍贝本比彼毕别宾波伯博勃布采查茨达戴丹道德登邓迪第蒂丁东杜多顿恩尔法凡范菲费芬"
    "丰冯弗福夫甫富盖冈高戈哥格根贡古瓜哈海汉豪赫黑亨洪侯胡华怀霍基吉加贾简杰金津卡坎康考科可克肯孔库夸昆拉莱"
    "赖兰朗劳勒雷累冷黎里理利莉连廉良列烈林琳隆卢鲁路露伦罗洛吕马玛迈麦曼毛梅门蒙孟米密明摩莫默姆穆纳娜南内嫩"
    "尼妮涅宁纽农努诺帕潘庞培佩彭皮平泼珀普齐奇乔琼丘让热仁日瑞若撒萨塞赛桑瑟森沙山莎尚绍舍申圣施史士舒斯丝松"
    "苏孙索塔泰坦唐陶特腾提廷图托瓦万旺威韦维魏温文翁沃乌武西希锡夏香肖谢辛欣雄休许雪雅亚延扬耶叶伊依因英尤于"
    "约赞泽曾扎詹章珍治朱卓兹子宗佐"
)
HAN_CHARACTER = re.compile(f"[{HAN}]")
_WORD = re.compile(rf"[{NO_SPACES}]|[^\s{NO_SPACES}]+")


def words_in(text: str) -> list[str]:
    """Split a text into words; in scripts written without spaces, every letter and mark counts as one."""
    return _WORD.findall(text)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return where each of the words that `words_in` finds begins and ends in a text."""
    return [match.span() for match in _WORD.finditer(text)]
