"""Stop words, which neither begin nor end a phrase."""

from __future__ import annotations

ENGLISH = frozenset(
    "a about above after again against all almost alone along already also although always am among an and another any "
    "are aren around as at away b back be became because become been before began behind being below between both but "
    "by c came can cannot could couldn d did didn do does doesn doing don done down during e each either else ever "
    "every f few for from further g get gets given go goes going gone got h had hadn has hasn have haven having he her "
    "here hers herself him himself his how however i if in instead into is isn it its itself j just k kept l largely "
    "later least less ll made mainly make makes many may me might more most mostly much must my myself n near nearly "
    "neither never no nor not now o of off often on once one only onto or other others our ours ourselves out over own "
    "p per perhaps put q quite r rather re really s said same saw say says see seen several shall she should since so "
    "some sometimes soon still such t take taken than that the their theirs them themselves then there therefore these "
    "they this those though three through thus to together too took toward towards two u under until up upon us use "
    "used using usually v ve very w was wasn we well went were weren what when where whereas whether which while who "
    "whom whose why will with within without won would wouldn x y yet you your yours yourself yourselves z".split()
)

CHINESE = frozenset(
    "的 了 在 是 和 与 及 或 而 但 并 也 都 就 又 还 把 被 从 对 向 于 为 以 到 由 让 给 使 将 有 没有 不 很 更 最 "
    "这 那 其 他 她 它 我 你 们 他们 我们 你们 她们 它们 这个 那个 这些 那些 一个 一些 一种 因为 所以 如果 但是 而且 "
    "以及 并且 已经 可以 可能 应该 自己 什么 怎么 这样 那样 之 所 地 得 着 过 等 中 上 下 里 后 前 时 说 要 会 能 "
    "个 一 两 三 几 多 每 各 某 此 该 如 比 只 再 才 却 则 虽然 通过 关于 对于 由于 根据 按照 为了 同时 目前".split()
)
