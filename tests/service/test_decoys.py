"""The credentials that unknown users appear to have."""

from __future__ import annotations

from collections import Counter

from rookery.security.credential import MIN_ITERATIONS, SALT_BYTES
from rookery.service.listen.decoys import CredentialForm, Decoys

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
LIGHT = [CredentialForm(SHA_256, 4096, 16), CredentialForm(SHA_512, 4096, 16)]
HEAVY = [CredentialForm(SHA_512, 8192, 24)]
SECRET = b"of this test"
NAMES = [f"name-{number}" for number in range(1_000)]


def draws(users: int, heavy: int) -> list[tuple[int, ...]]:
    decoys = Decoys(SECRET, [*[LIGHT] * (users - heavy), *[HEAVY] * heavy])
    return [tuple(each.iterations for each in decoys.of_user(name)) for name in NAMES]


def test_each_form_is_drawn_as_often_as_it_is_in_use() -> None:
    counts = Counter(draws(100, heavy=20))
    assert set(counts) == {(4096, 4096), (8192,)}
    assert 150 < counts[8192,] < 250


def test_a_new_user_changes_few_names() -> None:
    before, after = draws(100, heavy=20), draws(101, heavy=21)
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert changed < 30


def test_mechanisms_agree_with_each_other() -> None:
    decoys = Decoys(SECRET, [LIGHT, HEAVY, HEAVY])
    for name in NAMES[:100]:
        drawn = {each.mechanism: each for each in decoys.of_user(name)}
        assert decoys.of_mechanism(SHA_512, name) == drawn[SHA_512]
        # Only one form is in use for the other mechanism, also for names that lack it.
        assert decoys.of_mechanism(SHA_256, name).iterations == 4096


def test_salts_depend_on_secret_name_and_mechanism() -> None:
    decoys, others = Decoys(SECRET, [LIGHT]), Decoys(b"another one", [LIGHT])
    salts = [
        decoys.of_mechanism(SHA_256, "a").salt,
        decoys.of_mechanism(SHA_256, "b").salt,
        decoys.of_mechanism(SHA_512, "a").salt,
        others.of_mechanism(SHA_256, "a").salt,
    ]
    assert len(set(salts)) == len(salts)
    assert decoys.of_mechanism(SHA_256, "a") == Decoys(SECRET, [LIGHT]).of_mechanism(SHA_256, "a")


def test_salts_of_kafka_tools_are_imitated() -> None:
    text = CredentialForm.of(SHA_256, 4096, b"1k2j5p8q3m7n4r6s9t0uvwxyza")
    assert text != CredentialForm.of(SHA_256, 4096, b"\x00" * 26)
    decoys = Decoys(SECRET, [[text]])
    salts = [decoys.of_mechanism(SHA_256, name).salt for name in NAMES]
    assert {CredentialForm.of(SHA_256, 4096, salt) for salt in salts} == {text}
    # Numbers below 2¹³⁰ in base 36: with 26 digits, the first one is 1.
    assert {salt[:1] for salt in salts if len(salt) == 26} == {b"1"}


def test_tokens_and_clusters_without_users_have_the_usual_form() -> None:
    usual = (MIN_ITERATIONS, SALT_BYTES)
    nobody, heavy = Decoys(SECRET, ()), Decoys(SECRET, [HEAVY])
    shown = [*nobody.of_user("a"), nobody.of_mechanism(SHA_512, "a"), heavy.of_token(SHA_512, "t")]
    assert {(each.iterations, len(each.salt)) for each in shown} == {usual}
