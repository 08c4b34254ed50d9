"""Subject transforms and account mappings: by rule, by example, and against the real server."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.limits import MAPPED_SUBJECTS_MAX, MAPPING_DESTINATIONS_MAX
from penstock.routing.subject_transform import SubjectTransform, fnv1a
from penstock.routing.transforms import Destination, SubjectMappings
from penstock.testing.servers import find_reference, reference_server
from tests.models.transforms import transformed as modelled
from tests.support.nats_client import NatsClient


def never(_: int) -> int:
    raise AssertionError("nothing here is left to chance")


def highest(end: int) -> int:
    return end - 1


def transformed(source: str, destination: str, subject: str) -> str | None:
    found = SubjectTransform(source, destination).find(subject.encode(), never)
    return None if found is None else found.decode()


def mapped(mappings: SubjectMappings, subject: str) -> str:
    return mappings.map(subject.encode()).decode()


@pytest.mark.parametrize(
    ("source", "destination", "subject", "expected"),
    [
        ("a", "b.c", "a", "b.c"),
        ("a.*.*", "b.$2.$1", "a.x.y", "b.y.x"),
        ("a.*.*", "b.{{wildcard(2)}}.{{ Wildcard( 1 ) }}", "a.x.y", "b.y.x"),
        ("a.*", "b.$1.$1", "a.x", "b.x.x"),
        ("a.>", "b.>", "a.x.y", "b.x.y"),
        (">", "b.>", "a.x", "b.a.x"),
        ("", "b.>", "a.x", "b.a.x"),
        ("a.*.>", "b.$1.c.>", "a.x.y.z", "b.x.c.y.z"),
        ("a.*", "b.$JS", "a.x", "b.$JS"),
        ("a.*", "b.{{}}.{{x", "a.x", "b.{{}}.{{x"),
        ("a.*", "b.{{split(1,-)}}", "a.x-y-z", "b.x.y.z"),
        ("a.*", "b.{{split(1,-)}}", "a.-x--y-", "b.x.y"),
        ("a.*", "b.{{split(1,)}}", "a.xé", "b.x.é"),
        ("a.*", "b.{{splitFromLeft(1,2)}}", "a.12345", "b.12.345"),
        ("a.*", "b.{{splitFromRight(1,2)}}", "a.12345", "b.123.45"),
        ("a.*", "b.{{sliceFromLeft(1,2)}}", "a.12345", "b.12.34.5"),
        ("a.*", "b.{{sliceFromLeft(1,2)}}", "a.1234", "b.12.34"),
        ("a.*", "b.{{sliceFromRight(1,2)}}", "a.12345", "b.1.23.45"),
        ("a.*", "b.{{left(1,2)}}.{{right(1,2)}}", "a.12345", "b.12.45"),
        ("a.*", "b.{{left(1,9)}}.{{right(1,0)}}.{{left(1,-1)}}", "a.123", "b.123.123.123"),
        ("a.*.*", "b.{{partition(10,1,2)}}", "a.a.b", f"b.{fnv1a(b'ab') % 10}"),
        ("a.*.*", "b.{{partition(10,2)}}", "a.a.b", f"b.{fnv1a(b'b') % 10}"),
        ("a.*", "b.{{partition(10)}}", "a.x", f"b.{fnv1a(b'a.x') % 10}"),
        ("a", "b.{{partition(10,1)}}", "a", f"b.{fnv1a(b'a') % 10}"),
        ("a.*", "b.{{partition(0,1)}}", "a.x", "b.0"),
        ("a.*", "b.$1", "c.x", None),
        ("a.*", "b.$1", "a.x.y", None),
        ("a.*", "b.$1", "a", None),
        ("a.*", "b.$1", "a.*", None),
        ("a.*", "b.$1", "a.", None),
        ("a.>", "b.>", "a", None),
    ],
)
def test_a_subject_is_transformed(
    source: str, destination: str, subject: str, expected: str | None
) -> None:
    assert transformed(source, destination, subject) == expected


wildcards = st.sampled_from(("1", "2"))
destination_tokens = st.one_of(
    st.sampled_from(("b", "é", "$1", "$2", "$x", "{{random(9)}}", "{{partition(7)}}")),
    wildcards.map("{{{{wildcard({})}}}}".format),
    wildcards.map("{{{{partition(10,{})}}}}".format),
    st.sampled_from(("{{partition(5,1,2)}}", "{{partition(-3,1)}}", "{{random(0)}}")),
    st.builds(
        "{{{{{}({},{})}}}}".format,
        st.sampled_from(
            ("left", "right", "splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight")
        ),
        wildcards,
        st.integers(-1, 6),
    ),
    st.builds("{{{{split({},{})}}}}".format, wildcards, st.sampled_from(("-", "--", "x", "", "é"))),
)
subject_tokens = st.text("ax-é*>", max_size=7) | st.sampled_from(("a", "b", "12345"))


@given(
    st.sampled_from(("a.*.*", "*.*", "a.*.b.*", "*.*.>", "a.*.*.>")),
    st.lists(destination_tokens, min_size=1, max_size=4),
    st.lists(subject_tokens, min_size=1, max_size=6),
)
def test_a_transform_does_what_its_rules_say(
    source: str, destination: list[str], tokens: list[str]
) -> None:
    text = ".".join([*destination, ">"] if source.endswith(">") else destination)
    subject = ".".join(tokens).encode()

    found = SubjectTransform(source, text).find(subject, highest)

    assert found == modelled(source, text, subject, highest)


def test_the_hash_is_fnv1a() -> None:
    assert [fnv1a(text) for text in (b"", b"a", b"foobar")] == [0x811C9DC5, 0xE40C292C, 0xBF9CF968]


def test_random_asks_for_a_number_below_its_argument() -> None:
    asked: list[int] = []

    def below(end: int) -> int:
        asked.append(end)
        return end - 1

    transform = SubjectTransform("a", "b.{{random(7)}}.{{random(0)}}.{{random(-3)}}")

    assert transform.find(b"a", below) == b"b.6.0.2"
    assert asked == [7, 3]


BAD_DESTINATIONS = [
    ("foo", "bar.$1"),
    ("foo.*", "bar.$2"),
    ("foo.>", "bar.$1.>"),
    ("foo.*", "bar.{{wildcard(2)}}"),
    ("foo.*", "bar.{{nope(1)}}"),
    ("foo.*", "bar.{{sPlit(1,-)}}"),
    ("foo.*", "bar.{{x}}"),
    ("foo.*", "bar..x"),
    ("foo.*", "bar.>.x"),
    ("foo.*", "bar."),
    ("foo.*", "bar.*"),
    ("foo.*", "bar.>"),
    ("foo.>", "bar"),
    ("foo.*", "b c"),
    ("foo.*", "b.{{wildcard()}}"),
    ("foo.*", "b.{{wildcard(1,2)}}"),
    ("foo.*", "b.{{wildcard(a)}}"),
    ("foo.*", "b.{{split(1)}}"),
    ("foo.*", "b.{{split()}}"),
    ("foo.*", "b.{{split(1,-,x)}}"),
    ("foo.*", "b.{{split(x,-)}}"),
    ("foo.*", "b.{{split(1,a b)}}"),
    ("foo.*", "b.{{split(2,-)}}"),
    ("foo.*", "b.{{left(1)}}"),
    ("foo.*", "b.{{right(1,x)}}"),
    ("foo.*", "b.{{splitFromLeft(1,2,3)}}"),
    ("foo.*", "b.{{splitFromRight(9,2)}}"),
    ("foo.*", "b.{{sliceFromLeft(1,99999999999)}}"),
    ("foo.*", "b.{{sliceFromRight(1,1_0)}}"),
    ("foo.*", "b.{{random(a)}}"),
    ("foo.*", "b.{{random()}}"),
    ("foo.*", "b.{{random(1,2)}}"),
    ("foo.*", "b.{{random(3000000000)}}"),
    ("foo.*", "b.{{partition()}}"),
    ("foo.*", "b.{{partition(x,1)}}"),
    ("foo.*", "b.{{partition(2,x)}}"),
    ("foo.*", "b.{{partition(5,1,9)}}"),
    ("foo.*", "b.{{partition(3000000000,1)}}"),
    ("foo", "b.{{split(1,-)}}"),
    ("foo", "b.{{left(1,2)}}"),
]


@pytest.mark.oracle
def test_bad_destinations_are_refused_in_the_words_of_the_real_server(tmp_path: Path) -> None:
    lines = []
    expected = {}
    for number, (source, destination) in enumerate(BAD_DESTINATIONS):
        # Distinct sources: the real server tells of all that are wrong in one go.
        own = source.replace("foo", f"m{number}")
        lines.append(f"  {json.dumps(own)}: {json.dumps(destination)}")
        with pytest.raises(UsageError) as caught:
            SubjectTransform(own, destination)
        expected[own] = str(caught.value)
    config = tmp_path / "bad.conf"
    config.write_text("mappings {\n" + "\n".join(lines) + "\n}\n")

    answer = subprocess.run(
        [find_reference(), "-t", "-c", config],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    told = re.findall(r'Error adding mapping for "([^"]+)" to ".*" : (.*)', answer.stderr)
    assert dict(told) == expected


def test_an_empty_destination_is_refused() -> None:
    with pytest.raises(UsageError):
        SubjectTransform("foo", "")


@pytest.mark.parametrize(
    ("destinations", "text"),
    [
        ([Destination("a", 60), Destination("b", 60)], "total weight needs to be <= 100"),
        ([Destination("a", 60), Destination("a", 10)], 'duplicate entry for "a"'),
        ([Destination("a", 101)], "individual weights need to be <= 100"),
        ([Destination("a", -1)], "individual weights need to be <= 100"),
        ([Destination("a.$1", 1, "east")], "wildcard index out of range in $1"),
        (
            [Destination(f"a{number}", 0) for number in range(MAPPING_DESTINATIONS_MAX + 1)],
            f"more than {MAPPING_DESTINATIONS_MAX} destinations",
        ),
    ],
)
def test_bad_weights_are_refused(destinations: list[Destination], text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(text)):
        SubjectMappings({"foo": destinations}, random_below=never)


@pytest.mark.parametrize("source", ["foo..x", "", "a.>.b"])
def test_a_source_that_is_no_subject_is_refused(source: str) -> None:
    with pytest.raises(UsageError):
        SubjectMappings({source: [Destination("bar")]}, random_below=never)


@pytest.mark.parametrize(
    ("source", "destination", "text"),
    [
        ("a.*.*", "b.$1", "not using all of the token wildcard(s) in b.$1"),
        ("a.*", "b.{{split(1,-)}}", "is {{Wildcard()}} in {{split(1,-)}}"),
    ],
)
def test_what_cannot_be_turned_round_is_refused_where_it_must_be(
    source: str, destination: str, text: str
) -> None:
    SubjectTransform(source, destination)

    with pytest.raises(UsageError, match=re.escape(text)):
        SubjectTransform(source, destination, reversible=True)


def test_what_can_be_turned_round_is_taken() -> None:
    transform = SubjectTransform("a.*.*", "b.$2.{{wildcard(1)}}", reversible=True)

    assert transform.find(b"a.x.y", never) == b"b.y.x"


def test_without_a_match_the_subject_stays() -> None:
    mappings = SubjectMappings({"a.*": [Destination("b.$1")]}, random_below=never)

    assert [mapped(mappings, each) for each in ("a.x", "c", "a..", "a.>", "")] == [
        "b.x", "c", "a..", "a.>", "",
    ]  # fmt: skip


def test_the_first_source_that_matches_decides() -> None:
    mappings = SubjectMappings(
        {"a.*": [Destination("one")], "a.b": [Destination("two")]}, random_below=never
    )

    assert mapped(mappings, "a.b") == "one"


def counted(destinations: list[Destination], *, cluster: str = "") -> Counter[str]:
    """Map once for each number that can be drawn."""
    drawn = iter(range(100))
    mappings = SubjectMappings(
        {"a.*": destinations}, random_below=lambda _: next(drawn), cluster=cluster
    )
    return Counter(mapped(mappings, "a.x") for _ in range(100))


def test_what_is_left_of_a_hundred_keeps_the_subject() -> None:
    counts = counted([Destination("b.$1", 30), Destination("c", 50)])

    assert counts == {"b.x": 30, "c": 50, "a.x": 20}


def test_what_is_left_is_lost_when_the_source_is_a_destination() -> None:
    drawn = iter(range(100))
    mappings = SubjectMappings(
        {"a": [Destination("a", 30), Destination("b", 20)]}, random_below=lambda _: next(drawn)
    )

    counts = Counter(mapped(mappings, "a") for _ in range(100))

    assert counts == {"a": 30, "b": 20, "": 50}


def test_a_cluster_has_its_own_destinations() -> None:
    destinations = [
        Destination("everywhere", 100),
        Destination("east.$1", 25, "EAST"),
        Destination("west.$1", 100, "WEST"),
    ]

    assert counted(destinations, cluster="EAST") == {"east.x": 25, "a.x": 75}
    assert counted(destinations, cluster="NORTH") == {"everywhere": 100}
    assert counted(destinations) == {"everywhere": 100}
    assert counted(destinations[1:], cluster="NORTH") == {"a.x": 100}


def test_mappings_tell_what_was_declared() -> None:
    destinations = (Destination("b", 40), Destination("c", 10, "EAST"))
    mappings = SubjectMappings({"a": destinations}, random_below=never)

    assert mappings.describe() == {"a": destinations}
    assert len(mappings) == 1


def test_the_memory_of_subjects_is_bounded() -> None:
    mappings = SubjectMappings({"a.*": [Destination("b.$1")]}, random_below=never)

    # Many of them take the place of others, twice, and none gets the answer of another.
    for number in [*range(MAPPED_SUBJECTS_MAX * 2)] * 2:
        assert mapped(mappings, f"a.{number}") == f"b.{number}"
        assert mapped(mappings, f"c.{number}") == f"c.{number}"

    assert MAPPED_SUBJECTS_MAX // 2 < mappings.applied.remembered <= MAPPED_SUBJECTS_MAX


tokens = st.text(st.characters(codec="utf-8", exclude_characters=".*> \r\n"), min_size=1)


@given(st.lists(tokens, min_size=1, max_size=5), st.integers(1, 8))
def test_cutting_a_token_loses_no_bytes(rest: list[str], size: int) -> None:
    subject = ".".join(["a", *rest]).encode()
    for function in ("splitFromLeft", "splitFromRight", "sliceFromLeft", "sliceFromRight"):
        transform = SubjectTransform("a.*.>", f"b.{{{{{function}(1,{size})}}}}.>")

        found = transform.find(subject, never)

        if len(rest) > 1:
            assert found is not None
            assert found.replace(b".", b"")[1:] == subject.replace(b".", b"")[1:]
        else:
            assert found is None


FUNCTIONS = [
    "${w}", "{{{{wildcard({w})}}}}", "{{{{partition({n},{w})}}}}", "{{{{partition({n})}}}}",
    "{{{{split({w},-)}}}}", "{{{{splitFromLeft({w},{n})}}}}", "{{{{splitFromRight({w},{n})}}}}",
    "{{{{sliceFromLeft({w},{n})}}}}", "{{{{SliceFromRight({w},{n})}}}}", "{{{{left({w},{n})}}}}",
    "{{{{ right( {w} , {n} ) }}}}", "lit", "$X",
]  # fmt: skip


def corpus(count: int) -> list[tuple[str, str, list[str]]]:
    """Make mappings with distinct sources, and subjects that mostly match them."""
    chance = random.Random(20_261_116)
    words = ["a", "b-c", "-x--y-", "12345", "abcdefgh", "*", "$1", "a>"]
    made = []
    for number in range(count):
        wildcards = chance.randint(0, 3)
        has_rest = chance.random() < 0.3
        pattern = ["*"] * wildcards + [">"] * has_rest
        # A partition of a subject without wildcards is left out: there the real server hashes the
        # subject or nothing, as the order of its mappings has it, which is left to chance.
        functions = FUNCTIONS if wildcards else ["lit", "$X"]
        destination = [f"d{number}"] + [
            chance.choice(functions).format(w=chance.randint(0, wildcards), n=chance.randint(-2, 9))
            for _ in range(chance.randint(0, 4))
        ]
        subjects = [
            ".".join([f"m{number}", *chance.choices(words, k=wildcards + chance.randint(0, 2))])
            for _ in range(8)
        ]
        made.append(
            (".".join([f"m{number}", *pattern]), ".".join(destination + [">"] * has_rest), subjects)
        )
    return made


@pytest.mark.oracle
def test_the_real_server_maps_the_same_subjects_to_the_same(tmp_path: Path) -> None:
    made = corpus(250)
    settings = "\n".join(f"  {json.dumps(s)}: {json.dumps(d)}" for s, d, _ in made)
    ours = SubjectMappings({s: [Destination(d)] for s, d, _ in made}, random_below=never)
    subjects = [subject for _, _, each in made for subject in each]
    theirs = {}
    mappings = f"mappings {{\n{settings}\n}}"
    with reference_server(settings=mappings) as server, NatsClient(server.port) as client:
        client.subscribe("*.>")
        client.subscribe("*")
        for number, subject in enumerate(subjects):
            client.publish(subject, b"%d" % number)
        client.publish("end")
        while (delivery := client.next_delivery()).subject != "end":
            theirs[int(delivery.payload)] = delivery.subject

    expected = {number: mapped(ours, subject) for number, subject in enumerate(subjects)}
    assert theirs == expected


@pytest.mark.oracle
def test_the_real_server_weighs_the_same(tmp_path: Path) -> None:
    settings = """
    server_name: one
    mappings {
      keep: [{destination: k1, weight: 40}]
      lose: [{destination: lose, weight: 20}, {destination: l1, weight: 20}]
      elsewhere: [{destination: e1, weight: 100, cluster: east}]
    }
    """
    drawn = random.Random(1).randrange
    ours = SubjectMappings(
        {
            "keep": [Destination("k1", 40)],
            "lose": [Destination("lose", 20), Destination("l1", 20)],
            "elsewhere": [Destination("e1", 100, "east")],
        },
        random_below=drawn,
    )
    sent = ["keep", "lose", "elsewhere"] * 2000
    with reference_server(settings=settings) as server, NatsClient(server.port) as client:
        client.subscribe("*")
        for subject in sent:
            client.publish(subject)
        client.publish("end")
        theirs: Counter[str] = Counter()
        while (delivery := client.next_delivery()).subject != "end":
            theirs[delivery.subject] += 1

    mine = Counter(mapped(ours, subject) for subject in sent)
    theirs[""] = len(sent) - theirs.total()
    assert theirs.keys() == mine.keys()
    # 2,000 draws each: six standard deviations are below 135.
    assert all(abs(theirs[subject] - mine[subject]) < 200 for subject in mine)
