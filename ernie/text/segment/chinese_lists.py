"""Word lists for Chinese names: well-known places, suffixes, titles, surnames, characters of foreign names."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

PLACES = (
    "中国 美国 英国 法国 德国 日本 俄罗斯 韩国 朝鲜 印度尼西亚 印度 巴基斯坦 孟加拉国 越南 "
    "老挝 柬埔寨 泰国 缅甸 马来西亚 新加坡 菲律宾 文莱 蒙古国 哈萨克斯坦 乌兹别克斯坦 阿富汗 "
    "伊朗 伊拉克 以色列 巴勒斯坦 约旦 叙利亚 黎巴嫩 沙特阿拉伯 科威特 也门 土耳其 埃及 利比亚 "
    "阿尔及利亚 摩洛哥 突尼斯 苏丹 埃塞俄比亚 肯尼亚 坦桑尼亚 南非 尼日利亚 加纳 刚果 安哥拉 "
    "意大利 西班牙 葡萄牙 荷兰 比利时 瑞士 瑞典 挪威 丹麦 芬兰 冰岛 爱尔兰 奥地利 波兰 捷克 "
    "匈牙利 罗马尼亚 保加利亚 希腊 乌克兰 白俄罗斯 南斯拉夫 克罗地亚 加拿大 墨西哥 古巴 巴西 "
    "阿根廷 智利 秘鲁 哥伦比亚 委内瑞拉 澳大利亚 新西兰 苏联 欧盟 联合国 东盟 北约 欧洲 亚洲 "
    "非洲 拉丁美洲 北美洲 南美洲 大洋洲 中东 东南亚 北京 上海 天津 重庆 河北 河南 山东 山西 "
    "湖北 湖南 广东 广西 江苏 江西 浙江 福建 安徽 四川 贵州 云南 陕西 甘肃 青海 辽宁 吉林 "
    "黑龙江 内蒙古 新疆 西藏 宁夏 海南 香港 澳门 台湾 广州 深圳 珠海 厦门 南京 苏州 杭州 "
    "宁波 武汉 长沙 成都 西安 兰州 郑州 济南 青岛 烟台 大连 沈阳 长春 哈尔滨 石家庄 太原 "
    "合肥 福州 南昌 南宁 昆明 贵阳 海口 拉萨 乌鲁木齐 银川 西宁 呼和浩特 台北 长江 黄河 "
    "华盛顿 纽约 伦敦 巴黎 柏林 东京 莫斯科 汉城 首尔 曼谷 罗马 日内瓦 布鲁塞尔 悉尼"
).split()

ORGANIZATION_SUFFIXES = (
    "股份有限公司 有限责任公司 有限公司 总公司 分公司 公司 集团 银行 大学 学院 中学 小学 委员会 "
    "法院 检察院 研究所 研究院 研究中心 出版社 电视台 通讯社 日报社 日报 医院 协会 学会 联合会 "
    "基金会 总局 公安局 工商局 财政部 外交部 国防部 人民政府 国务院 代表大会 党委 俱乐部 博物馆 "
    "图书馆 体育馆 交易所"
).split()

PLACE_SUFFIXES = "特别行政区 自治区 省 市".split()  # of the places above

DISTRICT_SUFFIXES = "自治州 自治县 开发区 市 县 镇".split()

TITLES = (
    "国家主席 总书记 委员长 总统 总理 首相 主席 部长 省长 市长 县长 书记 主任 局长 厅长 处长 "
    "校长 院长 所长 司长 将军 司令员 司令 政委 大使 外长 议长 教授 博士 研究员 工程师 总裁 "
    "董事长 经理 主编 记者 通讯员 同志 先生 女士 小姐 夫人 队长 教练"
).split()

SURNAMES = (
    "王李张刘陈杨赵黄周吴徐孙胡朱林何郭罗梁宋郑谢韩唐冯董萧程曹袁邓许傅沈曾彭吕苏卢蒋蔡贾丁魏薛叶阎余潘杜戴钟"
    "汪田姜范石姚谭廖邹熊陆郝孔崔康毛邱秦江顾侯邵孟龙万段钱汤尹黎易常武乔贺赖龚庞樊兰殷施洪翟颜倪严牛温芦季俞"
    "章鲁葛伍韦申尤毕聂丛焦岳齐沿"
)

# Characters that hardly ever occur inside a name of a person, a place or an organization.
OUTSIDE = (
    "的了在是和与及或对从向于为以到由让给使将把被这那其他她它我你们个等也都就还又并而但已曾每各某该此之所只很"
    "最更不没无有要会能可应需去来说称讲问叫用按据自从比如则再才却即便若因后前时里内间级家位名些几两吗呢吧啊着"
    "过起任"
)

# Traditional characters, and the simplified ones of the lists above and of stop words that they stand for.
_TRADITIONAL = (
    "並亞佈併來侷個們倫傑傢價內兩別則剋剛劉務勞區協卻叢吳呂員問喬嗎嚮嚴囌國圖團埰報場奧孫學寀寧將對岡島崑"
    "嶽師幾庫廈廣廳張彆後從愛慶應懞懷捨採揚撾據敘於時曏書會東楊樂樑樣檢檯歐沒湯溫漢潑澤濛濟濱瀋灣為烏無煙"
    "熱爾瑪瓊畢發盧矇硃祕種稱穀箇範簡糰約納紐級紮紹給統絲經維編緬練縣總纍纔羅聖聯聶肅臘臺與茲莊華菸萊萬葉"
    "著蓆蓋蔣蕭薑薩蘆蘇蘭處衕衚衹裡視訊託記許該誇誌說諾講謝譚議讓讚豐貝財貢貨責貴費賀賈賓賴賽贊趙軍辦農這"
    "連週過達遼邁還鄒鄧鄭醫銀錢錫錶鍾鎮鐘長門開間閤閻關陝陳陸陽隊隻雖雲電韋韓頓顏顧颱餘館馬馮騰體髮鬆鬍魯"
    "鮑鮮麥麵麼黃黨齊齣龍龐龔"
)
_SIMPLIFIED = (
    "并亚布并来局个们伦杰家价内两别则克刚刘务劳区协却丛吴吕员问乔吗向严苏国图团采报场奥孙学采宁将对冈岛昆"
    "岳师几库厦广厅张别后从爱庆应蒙怀舍采扬挝据叙于时向书会东杨乐梁样检台欧没汤温汉泼泽蒙济滨沈湾为乌无烟"
    "热尔玛琼毕发卢蒙朱秘种称谷个范简团约纳纽级扎绍给统丝经维编缅练县总累才罗圣联聂肃腊台与兹庄华烟莱万叶"
    "着席盖蒋萧姜萨芦苏兰处同胡只里视讯托记许该夸志说诺讲谢谭议让赞丰贝财贡货责贵费贺贾宾赖赛赞赵军办农这"
    "连周过达辽迈还邹邓郑医银钱锡表钟镇钟长门开间合阎关陕陈陆阳队只虽云电韦韩顿颜顾台余馆马冯腾体发松胡鲁"
    "鲍鲜麦面么黄党齐出龙庞龚"
)
SIMPLIFIED = dict(zip(_TRADITIONAL, _SIMPLIFIED, strict=True))


def variants(words: Iterable[str]) -> set[str]:
    """Return simplified words, and their forms in traditional characters."""
    forms: dict[str, str] = {}
    for traditional, simplified in SIMPLIFIED.items():
        forms[simplified] = forms.get(simplified, simplified) + traditional
    return {"".join(form) for word in words for form in product(*(forms.get(letter, letter) for letter in word))}
