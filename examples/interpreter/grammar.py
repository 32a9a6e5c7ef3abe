"""Sentences of a small language, 60 English words, and their German translations.

Word orders differ.  A German article depends on the gender of its noun, for which a translator has to wait, or guess.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple


class Pair(NamedTuple):
    """An English sentence and its German translation."""

    english: str
    german: str


class Noun(NamedTuple):
    """A noun in both languages; its German gender is m, f or n."""

    english: str
    german: str
    gender: str


NOUNS = [
    Noun("train", "zug", "m"),
    Noun("garden", "garten", "m"),
    Noun("letter", "brief", "m"),
    Noun("city", "stadt", "f"),
    Noun("bridge", "brücke", "f"),
    Noun("door", "tür", "f"),
    Noun("book", "buch", "n"),
    Noun("house", "haus", "n"),
    Noun("window", "fenster", "n"),
]
ADJECTIVES = {"red": "rot", "green": "grün", "new": "neu", "small": "klein", "beautiful": "schön"}
VERBS = {
    "see": ("seen", "sehen", "gesehen"),
    "buy": ("bought", "kaufen", "gekauft"),
    "find": ("found", "finden", "gefunden"),
    "show": ("shown", "zeigen", "gezeigt"),
}
PEOPLE = {"i": ("ich", 0), "we": ("wir", 1), "they": ("sie", 1), "the teacher": ("der lehrer", 0)}
MODALS = {"can": ("kann", "können"), "must": ("muss", "müssen")}
TIMES = {"today": "heute", "tomorrow": "morgen", "now": "jetzt", "on monday": "am montag", "in summer": "im sommer"}
HOURS = {"three": "drei", "seven": "sieben", "nine": "neun"}
DEGREES = {"very": "sehr", "not": "nicht"}
PHRASES = [Pair("good morning", "guten morgen"), Pair("thank you", "danke")]
_DEFINITE = {"m": ("der", "den"), "f": ("die", "die"), "n": ("das", "das")}
_INDEFINITE = {"m": ("ein", "einen"), "f": ("eine", "eine"), "n": ("ein", "ein")}


def wanted(rng: random.Random) -> Pair:
    """`tomorrow we want to buy a red house`: in German the first verb comes before the person, the second one last."""
    english, (german, plural) = rng.choice(list(PEOPLE.items()))
    verb, (_, infinitive, _) = rng.choice(list(VERBS.items()))
    thing, what = noun_phrase(rng, accusative=True)
    time, when = rng.choice([("", ""), *TIMES.items()])
    if rng.random() < 0.5:
        want = "wants to" if english.startswith("the ") else "want to"
        modal, verb_form = want, ("will", "wollen")[plural]
    else:
        modal, forms = rng.choice(list(MODALS.items()))
        verb_form = forms[plural]
    first = (verb_form, german) if when else (german, verb_form)
    return Pair(words(time, english, modal, verb, thing), words(when, *first, what, infinitive))


def done(rng: random.Random) -> Pair:
    """`i have seen the new bridge`: the German participle comes last."""
    english, (german, _) = rng.choice(list(PEOPLE.items()))
    participle, _, german_participle = rng.choice(list(VERBS.values()))
    thing, what = noun_phrase(rng, accusative=True)
    have = "has" if english.startswith("the ") else "have"
    auxiliary = {"ich": "habe", "der lehrer": "hat"}.get(german, "haben")
    return Pair(words(english, have, participle, thing), words(german, auxiliary, what, german_participle))


def asked(rng: random.Random) -> Pair:
    """`where is the red door` and `can you see the train`."""
    if rng.random() < 0.5:
        thing, what = noun_phrase(rng, accusative=False, definite=True)
        return Pair(words("where is", thing), words("wo ist", what))
    verb, (_, infinitive, _) = rng.choice(list(VERBS.items()))
    thing, what = noun_phrase(rng, accusative=True)
    return Pair(words("can you", verb, thing), words("kannst du", what, infinitive))


def described(rng: random.Random) -> Pair:
    """`the garden is very beautiful`."""
    thing, what = noun_phrase(rng, accusative=False, definite=True)
    adjective, german = rng.choice(list(ADJECTIVES.items()))
    degree, german_degree = rng.choice([("", ""), *DEGREES.items()])
    return Pair(words(thing, "is", degree, adjective), words(what, "ist", german_degree, german))


def departed(rng: random.Random) -> Pair:
    """`tomorrow the train leaves at seven`: in German the verb comes second."""
    hour, german_hour = rng.choice(list(HOURS.items()))
    time, when = rng.choice([("", ""), *TIMES.items()])
    first = ("fährt", "der zug") if when else ("der zug", "fährt")
    return Pair(words(time, "the train leaves at", hour), words(when, *first, "um", german_hour))


def joined(rng: random.Random) -> Pair:
    """`they have found the letter and today we can see a city`: two sentences."""
    first, second = (rng.choice((wanted, done, described, departed))(rng) for _ in range(2))
    return Pair(words(first.english, "and", second.english), words(first.german, "und", second.german))


def greeted(rng: random.Random) -> Pair:
    """One of the phrases."""
    return rng.choice(PHRASES)


RULES: list[tuple[Callable[[random.Random], Pair], int]] = [
    (wanted, 8),
    (done, 4),
    (asked, 3),
    (described, 3),
    (departed, 2),
    (joined, 2),
    (greeted, 1),
]


def noun_phrase(rng: random.Random, accusative: bool, definite: bool | None = None) -> tuple[str, str]:
    """A noun with its article and up to one adjective, in both languages; the article is drawn unless `definite`."""
    noun, definite = rng.choice(NOUNS), rng.random() < 0.5 if definite is None else definite
    adjective, german = rng.choice([("", ""), *ADJECTIVES.items()] if rng.random() < 0.5 else list(ADJECTIVES.items()))
    article = (_DEFINITE if definite else _INDEFINITE)[noun.gender][accusative]
    if german:
        german += ending(noun.gender, accusative, definite)
    return words("the" if definite else "a", adjective, noun.english), words(article, german, noun.german)


def ending(gender: str, accusative: bool, definite: bool) -> str:
    """The ending of a German adjective: weak after der, die, das, mixed after ein, eine."""
    if gender == "m":
        return "en" if accusative else "e" if definite else "er"
    return "e" if gender == "f" or definite else "es"


def words(*parts: str) -> str:
    """The parts that are not empty, with spaces between."""
    return " ".join(part for part in parts if part)


def sentences(count: int, seed: int) -> list[Pair]:
    """So many different sentences, the same for the same seed."""
    rng, found = random.Random(seed), dict[Pair, None]()
    rules, weights = zip(*RULES, strict=True)
    while len(found) < count:
        found.setdefault(rng.choices(rules, weights)[0](rng))
    return list(found)
