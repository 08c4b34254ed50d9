"""Random stories: a stream whose configuration, messages and requests are drawn from a seed."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.api.compared import (
    Step,
    Story,
    ask,
    create,
    delete_message,
    direct,
    get,
    get_many,
    info,
    publish,
    purge,
    update,
)

SECOND_NS = 10**9
STEPS_MIN, STEPS_MAX = 10, 35
REMAINDERS = ("a", "b", "c.d", "e")


def _config(rng: Random, storage: str) -> dict[str, Any]:
    drawn: list[tuple[float, dict[str, Any]]] = [
        (0.3, {"max_msgs": rng.randint(1, 8)}),
        (0.2, {"max_bytes": rng.randint(60, 600)}),
        (0.3, {"max_msgs_per_subject": rng.randint(1, 3)}),
        (0.2, {"discard": "new"}),
        (0.2, {"max_msg_size": rng.randint(1, 20)}),
        (0.3, {"allow_rollup_hdrs": True}),
        (0.1, {"deny_delete": True}),
        (0.1, {"deny_purge": True}),
        (0.2, {"allow_msg_ttl": True}),
        (0.15, {"subject_delete_marker_ttl": 60 * SECOND_NS}),
        (0.1, {"allow_msg_counter": True}),
        (0.15, {"allow_atomic": True}),
        (0.1, {"retention": rng.choice(["interest", "workqueue"])}),
        (0.1, {"discard_new_per_subject": True}),
        (0.1, {"first_seq": rng.randint(0, 50)}),
        (0.1, {"compression": "s2"}),
        (0.05, {"sealed": True}),
        (0.1, {"metadata": {"a": "b"}}),
        (0.1, {"duplicate_window": 3600 * SECOND_NS}),
        (0.1, {"max_age": 7200 * SECOND_NS}),
        (0.05, {"allow_msg_schedules": True}),
        (0.1, {"consumer_limits": {"max_ack_pending": 5}}),
        (0.1, {"persist_mode": "async"}),
        (0.1, {"pedantic": True}),
    ]
    config: dict[str, Any] = {"storage": storage, "allow_direct": True}
    for chance, fields in drawn:
        if rng.random() < chance:
            config |= fields
    return config


def _message(rng: Random, subject: str) -> Step:
    drawn = [
        (0.15, "Nats-Msg-Id", str(rng.randint(1, 4))),
        (0.1, "Nats-Rollup", rng.choice(["sub", "all", "x"])),
        (0.1, "Nats-TTL", rng.choice(["3600", "1h", "never", "0", "x", "500ms"])),
        (0.1, "Nats-Expected-Last-Sequence", str(rng.randint(0, 9))),
        (0.1, "Nats-Expected-Last-Subject-Sequence", str(rng.randint(0, 9))),
        (0.12, "Nats-Incr", rng.choice(["1", "-5", "+7", "x"])),
        (0.05, "X", "y"),
    ]
    headers = {name: value for chance, name, value in drawn if rng.random() < chance}
    is_empty = "Nats-Incr" in headers and rng.random() < 0.9
    return publish(subject, b"" if is_empty else b"x" * rng.randint(0, 15), headers=headers)


def _purge(rng: Random, s: str, pattern: str) -> Step:
    request: dict[str, Any] = {"filter": pattern} if rng.random() < 0.5 else {}
    if rng.random() < 0.4:
        request["seq"] = rng.randint(0, 20)
    elif "filter" in request and rng.random() < 0.4:
        request["keep"] = rng.randint(0, 4)
    return purge(s, **request)


def _question(rng: Random, s: str, subject: str, pattern: str) -> Step:
    few, seq = rng.randint(2, 5), rng.randint(1, 12)
    return rng.choice(
        [
            info(s),
            info(s, subjects_filter=pattern, deleted_details=True, offset=rng.choice([0, 0, 1])),
            get(s, seq=rng.randint(0, 15)),
            get(s, last_by_subj=subject),
            get(s, next_by_subj=pattern, seq=rng.randint(0, 9)),
            get(s, seq=3, no_hdr=True),
            direct(s, seq=seq),
            get_many(s, seq=seq, batch=few),
            get_many(s, next_by_subj=pattern, batch=few),
            get_many(s, multi_last=[pattern, subject]),
            get_many(s, multi_last=[pattern], up_to_seq=seq),
        ]
    )


def random_story(rng: Random, s: str) -> Story:
    """Return a story about a stream of a name."""
    storage = rng.choice(["file", "memory"])
    story = [create(s, **_config(rng, storage))]
    for _ in range(rng.randint(STEPS_MIN, STEPS_MAX)):
        subject = f"{s}.{rng.choice(REMAINDERS)}"
        pattern = rng.choice([subject, f"{s}.*", f"{s}.>", ">", f"{s}.c.*", "nothing"])
        chance = rng.random()
        if chance < 0.45:
            story.append(_message(rng, subject))
        elif chance < 0.53:
            erased = {"no_erase": True} if rng.random() < 0.5 else {}
            story.append(delete_message(s, seq=rng.randint(0, 15), **erased))
        elif chance < 0.61:
            story.append(_purge(rng, s, pattern))
        elif chance < 0.67:
            story.append(update(s, **_config(rng, storage)))
        else:
            story.append(_question(rng, s, subject, pattern))
    everything = info(s, subjects_filter=">", deleted_details=True)
    return [*story, everything, ask(f"STREAM.DELETE.{s}")]
