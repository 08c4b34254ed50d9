"""Requests for streams with subjects, transforms and origins in all the ways they can be wrong."""

from __future__ import annotations

from typing import Any

from tests.stream.compared import Case, alone, beside, changed, create, update

SECOND = 1_000_000_000


def _subjects() -> list[Case]:
    lists: list[list[str]] = [[], ["a"], ["a", "b"], ["a", "a"], ["a.*", "a.b"], ["a.b", "a.*"]]
    lists += [["a.>", "a.b.c"], ["*.a", "b.*"], ["a.*.c", "a.b.*"], ["*", "*.*"], ["a.>", "a"]]
    lists += [["a.*", "a.>"], [""], ["a..b"], [".a"], ["a."], ["a b"], ["a.>.b"], ["a*.b", "a>"]]
    lists += [[">"], ["*"], ["*.*"], ["$JS.>"], ["$JS.API.>"], ["$JS.EVENT.>"], ["$JS.EVENT.A.*"]]
    lists += [["$JS.*"], ["$JSC.a"], ["$NRG.a"], ["$SYS.>"], ["$SYS.ACCOUNT.>"], ["$SYS.ACCOUNT.a"]]
    lists += [
        ["$SYS.A"],
        ["*.>"],
        ["$JS.EVENT"],
        ["$JS"],
        ["$SYS"],
        ["é.ü"],
        ["a<b>&"],
        ["$KV.a.>"],
    ]
    found: list[Case] = [alone(subjects=each) for each in lists]
    found += [
        alone(subjects=each, no_ack=True) for each in lists if "$" in str(each) or ">" in each
    ]
    found += [alone(subjects=[">"], no_ack=True, num_replicas=3)]
    found += [
        alone(subjects=["a"], pedantic=True),
        changed({"subjects": ["a"]}, {"subjects": ["b"]}),
    ]
    found += [
        changed({"subjects": ["a"]}, {}),
        changed({"subjects": ["a"]}, {"subjects": ["b.>", "b.c"]}),
    ]
    other = {"name": "O", "subjects": ["o.>", "p.*"]}
    for subjects in (["o.a"], ["p.a.b"], ["p.>"], ["*.a"], ["q"], ["o"], [">"]):
        found.append(beside(dict(other), subjects=subjects))
        found.append((create("O", subjects=["o.>", "p.*"]), create(), update(subjects=subjects)))
    found.append((create("O", subjects=["S"]), create()))
    found.append((create(subjects=["a"]), create("O", subjects=["b"]), update(subjects=["a", "c"])))
    return found


def _pairs() -> list[tuple[str, str]]:
    pairs = [(">", ">"), ("a.*", "b.$1"), ("a.*", "b.{{wildcard(1)}}"), ("a.*", "b"), ("", "x.>")]
    pairs += [
        ("a.*", "b.$2"),
        ("a", "b.$1"),
        ("a.>", "b"),
        ("a.>", "b.>"),
        ("a.b", "c.*"),
        ("", ""),
    ]
    pairs += [
        ("a..b", "c"),
        ("a.*", ""),
        ("", "x"),
        ("a.*", "b.{{bogus(1)}}"),
        ("a.*", "b c"),
        ("a.*", "b."),
    ]
    pairs += [
        ("a.*", "b.{{partition(3,1)}}"),
        ("a", "b.{{partition(3)}}"),
        ("a.*", "b.{{split(1,-)}}"),
    ]
    pairs += [("a.*", "b.{{left(1,2)}}"), ("a.*", "b.{{right(1,2)}}"), ("a.*", "b.{{random(5)}}")]
    pairs += [
        ("a.*", "b.{{splitFromLeft(1,2)}}"),
        ("a.*", "b.{{sliceFromRight(1,2)}}"),
        ("a.*", ">.b"),
    ]
    pairs += [
        ("a.*", "b.{{wildcard()}}"),
        ("a.*", "b.{{wildcard(1,2)}}"),
        ("a b", "c"),
        ("a.*", "b..$1"),
    ]
    pairs += [
        ("a.>", "b.>.c"),
        ("*.*", "$2.$1"),
        ("a.*", "*.b"),
        (">", "a"),
        ("a.*", "b.{{wildcard(9)}}"),
    ]
    return pairs


def _transforms() -> list[Case]:
    found: list[Case] = []
    for source, destination in _pairs():
        pair = {"src": source, "dest": destination}
        found.append(alone(subject_transform=pair))
        # An invalid subject is refused here; the real server accepts some of them.
        if " " not in source + destination and not destination.startswith(">."):
            found.append(alone(subjects=["s.>"], republish=pair))
        found.append(alone(mirror={"name": "O", "subject_transforms": [pair]}))
        found.append(alone(sources=[{"name": "O", "subject_transforms": [pair]}]))
    return found


def _republished() -> list[Case]:
    found: list[Case] = []
    found += [alone(republish=value) for value in ({}, {"dest": "r"}, {"src": "S", "dest": "r.>"})]
    found += [alone(republish={"dest": "r.>", "headers_only": True}), alone(republish=None)]
    found += [alone(republish={"dest": "r.>"}, pedantic=True), alone(republish={"dest": "S"})]
    found += [alone(subjects=["a.*"], republish={"src": "a.*", "dest": "a.$1"})]
    found += [alone(subjects=["a.*"], republish={"src": "a.*", "dest": "a.b"})]
    implicit: dict[str, Any] = {"subjects": ["a.>"], "republish": {"src": ">", "dest": ">"}}
    for extra in ({}, {"subject_transform": {"src": "a.>", "dest": "b.>"}}):
        found += [alone(**implicit, **extra), alone(**implicit, **extra, pedantic=True)]
        found += [changed({"subjects": ["a.>"]}, implicit | extra)]
    found += [
        alone(
            subjects=["a.>", "c"],
            subject_transform={"src": "a.>", "dest": "b.>"},
            republish={"dest": ">"},
        )
    ]
    found += [
        changed({"republish": {"dest": "r.>"}}, {}),
        changed({}, {"republish": {"src": "", "dest": ""}}),
    ]
    found += [
        changed(
            {"subject_transform": {"src": "S", "dest": "t"}},
            {"subject_transform": {"src": "S", "dest": "u"}},
        )
    ]
    found += [changed({"subject_transform": {"src": "S", "dest": "t"}}, {})]
    return found


def _origin_documents() -> list[dict[str, Any]]:
    consumer = {"name": "C", "deliver_subject": "d"}
    external = {"api": "$JS.hub.API", "deliver": "hub.deliver"}
    origins: list[dict[str, Any]] = [{"name": "O"}, {"name": ""}, {"name": "a.b"}, {}]
    origins += [
        {"name": "O", "opt_start_seq": 5},
        {"name": "O", "opt_start_time": "2024-01-02T03:04:05.5+02:00"},
    ]
    origins += [
        {"name": "O", "filter_subject": text} for text in ("", "a", "a.>", "a..b", "a b", ">")
    ]
    origins += [
        {"name": "O", "filter_subject": "a", "subject_transforms": [{"src": "a", "dest": "b"}]}
    ]
    origins += [
        {"name": "O", "subject_transforms": [{"src": one, "dest": "x"}, {"src": two, "dest": "y"}]}
        for one, two in (("a", "b"), ("a", "a"), ("a.b", "a.b"), ("", "b"), ("", ""), ("c", ""))
    ]
    origins += [
        {
            "name": "O",
            "subject_transforms": [{"src": "a.*", "dest": "x.$1"}, {"src": "a.b", "dest": "y"}],
        }
    ]
    origins += [
        {
            "name": "O",
            "subject_transforms": [{"src": "a.*.c", "dest": "x"}, {"src": "a.b.*", "dest": "y"}],
        }
    ]
    origins += [
        {"name": "O", "external": value} for value in (external, {}, None, {"api": "$JS.hub.API"})
    ]
    origins += [
        {"name": "O", "external": {"api": text, "deliver": ""}}
        for text in ("$JS.API", "a.*", ">", "a b", "$JS.*")
    ]
    origins += [
        {"name": "O", "external": {"api": "x", "deliver": text}}
        for text in ("a.*", ">", "a b", "d", "..")
    ]
    origins += [
        {"name": "", "external": external},
        {"name": "S"},
        {"name": "S", "external": external},
    ]
    origins += [
        {"name": "O", "consumer": value}
        for value in (consumer, {}, {"name": "C"}, {"deliver_subject": "d"})
    ]
    origins += [
        {"name": "O", "consumer": {"name": name, "deliver_subject": subject}}
        for name, subject in (("a.b", "d"), ("C", "d.*"), ("C", "d..e"), ("C", ""))
    ]
    origins += [
        {"name": "O", "consumer": consumer} | more
        for more in (
            {"opt_start_seq": 1},
            {"filter_subject": "a"},
            {"opt_start_time": "2024-01-02T03:04:05Z"},
        )
    ]
    return origins


def _origins() -> list[Case]:
    found: list[Case] = []
    for origin in _origin_documents():
        found += [
            alone(mirror=origin),
            alone(sources=[origin]),
            alone(sources=[origin], subjects=["s"]),
        ]
        found += [
            (create("O", subjects=["o.>"]), create(mirror=origin)),
            (create("O"), create(sources=[origin])),
        ]
    return found


def _origins_together() -> list[Case]:
    one: dict[str, Any] = {"name": "O"}
    found: list[Case] = [
        alone(mirror=one, **more)
        for more in (
            {"subjects": ["a"]},
            {"first_seq": 1},
            {"sources": [one]},
            {"max_msg_size": 5},
            {"max_age": SECOND},
            {"duplicate_window": SECOND},
            {"mirror_direct": True},
            {"retention": "workqueue"},
            {"pedantic": True},
        )
    ]
    found += [
        alone(sources=value) for value in ([one, one], [one, {"name": "P"}], [None], [], None)
    ]
    found += [
        alone(sources=[one, one | {"filter_subject": "a"}]),
        alone(sources=[one, one | {"filter_subject": ">"}]),
    ]
    found += [alone(sources=[one, one | {"external": {"api": "x", "deliver": ""}}])]
    consumer = {"consumer": {"name": "C", "deliver_subject": "d"}}
    found += [alone(sources=[one | consumer, one | consumer]), alone(sources=[one | consumer, one])]
    filtered = {"subject_transforms": [{"src": "a", "dest": "b"}]}
    found += [alone(sources=[one | consumer, one | consumer | filtered])]
    for size in (-1, 5, 10, 20):
        found.append((create("O", max_msg_size=10), create(mirror=one, max_msg_size=size)))
        found.append((create("O", max_msg_size=10), create(sources=[one], max_msg_size=size)))
    for direct in (True, False):
        found.append((create("O", allow_direct=direct), create(mirror=one)))
        found.append((create("O", allow_direct=direct), create(mirror=one, mirror_direct=True)))
        found.append((create("O", allow_direct=direct), create(mirror=one, pedantic=True)))
    return found


def _origins_changed_and_in_circles() -> list[Case]:
    one: dict[str, Any] = {"name": "O"}
    found: list[Case] = []
    found += [
        changed({"mirror": one}, {"mirror": {"name": "P"}}),
        changed({"mirror": one}, {"mirror": one}),
    ]
    found += [
        changed({"mirror": one}, {}),
        changed({}, {"mirror": one}),
        changed({"mirror": one}, {"subjects": ["x"]}),
    ]
    found += [
        changed({"sources": [one]}, {"sources": [{"name": "P"}]}),
        changed({"sources": [one]}, {}),
    ]
    found += [
        changed({"sources": [one]}, {"sources": [one, {"name": "P", "filter_subject": "a b"}]})
    ]
    found += [(create("A", sources=[{"name": "B"}]), create("B", sources=[{"name": "A"}]))]
    found += [
        (
            create("A", sources=[{"name": "B", "filter_subject": "x"}]),
            create("B", subjects=["y"], sources=[{"name": "A", "filter_subject": "z"}]),
        )
    ]
    found += [
        (
            create("A", sources=[{"name": "B"}]),
            create("B", subjects=["y"], sources=[{"name": "A", "filter_subject": "y"}]),
        )
    ]
    found += [
        (create("A", mirror={"name": "B"}), create("B", mirror={"name": "A"})),
        alone(mirror={"name": "S"}),
    ]
    found += [(create("A", mirror={"name": "B"}), create("B", sources=[{"name": "A"}]))]
    found += [
        (create("A"), create("B", sources=[{"name": "A"}]), update("A", sources=[{"name": "B"}]))
    ]
    # One stream by two ways: whether that counts as a circle depends on which way comes first.
    found += [
        (
            create("D"),
            create("B", sources=[{"name": "D"}]),
            create(sources=[{"name": name} for name in names]),
        )
        for names in ("BD", "DB")
    ]
    overlap = {"api": "x", "deliver": "o"}
    found += [
        (create("O", subjects=[subject]), create(sources=[one, {"name": "P", "external": overlap}]))
        for subject in ("o.>", "*", ">", "*.>", "p")
    ]
    return found


CASES: list[Case] = [
    *_subjects(),
    *_transforms(),
    *_republished(),
    *_origins(),
    *_origins_together(),
    *_origins_changed_and_in_circles(),
]
