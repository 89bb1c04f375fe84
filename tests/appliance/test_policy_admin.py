"""The administrators' socket: who asked, what is asked, what is answered."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from conductor.activation.adminclient import SOCKET, AdminRefused, DaemonDown, ask
from conductor.activation.desk import NoSuchRevision, Outcome, Who, Wish
from conductor.activation.report import Problem, Report
from conductor.api.admin import administered
from conductor.errors import AuditError, BadRequest
from support.planner import socket_folder

GOOD = Report("ab" * 32, 7)
BAD = GOOD.and_problem(Problem("lint", "unreachable", "covered by a deny", "p.yaml:3:5"))


@dataclass
class FakeLife:
    """Notes what it is asked."""

    report: Report = GOOD
    broken: Exception | None = None
    asked: list[Any] = field(default_factory=list)

    async def apply(self, wish: Wish, who: Who) -> Outcome:
        return self._answer(wish, who)

    async def rollback(self, revision: int | None, who: Who) -> Outcome:
        return self._answer(revision, who)

    def status(self) -> dict[str, Any]:
        return {"object": "conductor.policy"}

    def history(self) -> list[dict[str, Any]]:
        return [{"revision": 7}]

    def _answer(self, *asked: Any) -> Outcome:
        self.asked.append(asked)
        if self.broken:
            raise self.broken
        return Outcome(self.report.ok, self.report)


async def explained(raw: bytes, key: str | None, declared: str | None) -> dict[str, Any]:
    if key == "nobody":
        raise BadRequest("There is no such key here.")
    return {"raw": raw.decode(), "key": key, "declared": declared}


@asynccontextmanager
async def office(life: FakeLife) -> AsyncIterator[Any]:
    """Asks the socket as the command line does."""
    with socket_folder() as folder:
        async with administered(folder / SOCKET, life, explained):

            async def asking(method: str, path: str, body: object | None = None) -> dict[str, Any]:
                return await asyncio.to_thread(ask, folder, method, path, body)

            yield asking


async def test_a_candidate_is_put_in_force_by_the_user_at_the_other_end() -> None:
    life = FakeLife()
    async with office(life) as asking:
        answer = await asking("POST", "/v1/policy", {"policy": "revision: 7\n"})
    assert (answer["verdict"], answer["revision"]) == ("active", 7)
    assert life.asked == [(Wish(b"revision: 7\n"), Who(os.getuid(), "socket"))]


async def test_a_refused_candidate_is_answered_with_every_reason() -> None:
    async with office(FakeLife(BAD)) as asking:
        answer = await asking("POST", "/v1/policy", {"policy": "x", "emergency": True})
    assert answer["verdict"] == "refused"
    assert answer["problems"][0]["where"] == "p.yaml:3:5"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "policy: text"),
        ({"policy": 5}, "policy must be text"),
        ({"policy": "x", "emergency": "yes"}, "true or false"),
        ({"policy": "x", "approvals": [{}]}, "approval"),
        ([], "object"),
    ],
)
async def test_a_question_that_is_none_changes_nothing(body: object, message: str) -> None:
    life = FakeLife()
    async with office(life) as asking:
        with pytest.raises(AdminRefused, match=message):
            await asking("POST", "/v1/policy", body)
    assert life.asked == []


async def test_without_a_record_there_is_no_change() -> None:
    async with office(FakeLife(broken=AuditError("full"))) as asking:
        with pytest.raises(AdminRefused, match="cannot record"):
            await asking("POST", "/v1/policy", {"policy": "x"})


async def test_going_back_takes_a_revision_or_none() -> None:
    life = FakeLife()
    async with office(life) as asking:
        await asking("POST", "/v1/policy/rollback", {"revision": 3})
        await asking("POST", "/v1/policy/rollback")
        with pytest.raises(AdminRefused, match="whole number"):
            await asking("POST", "/v1/policy/rollback", {"revision": "3"})
        life.broken = NoSuchRevision("there is no earlier policy")
        with pytest.raises(AdminRefused, match="no earlier policy"):
            await asking("POST", "/v1/policy/rollback", {"revision": 9})
    assert [asked[0] for asked in life.asked] == [3, None, 9]


async def test_status_history_and_explanations_are_given() -> None:
    async with office(FakeLife()) as asking:
        assert (await asking("GET", "/v1/policy"))["object"] == "conductor.policy"
        assert (await asking("GET", "/v1/policy/history"))["data"] == [{"revision": 7}]
        asked = {"request": {"model": "m"}, "key": "app"}
        answer = await asking("POST", "/v1/policy/explain", asked)
        assert answer == {"raw": '{"model":"m"}', "key": "app", "declared": None}
        with pytest.raises(AdminRefused, match="no such key"):
            await asking("POST", "/v1/policy/explain", {**asked, "key": "nobody"})


async def test_the_socket_is_for_its_owner_alone() -> None:
    with socket_folder() as folder:
        async with administered(folder / SOCKET, FakeLife(), explained):
            assert (folder / SOCKET).stat().st_mode & 0o777 == 0o600


def test_an_appliance_that_is_down_is_told(tmp_path: Path) -> None:
    with pytest.raises(DaemonDown, match="not running"):
        ask(tmp_path, "GET", "/v1/policy")


async def test_yaml_is_taken_as_it_is() -> None:
    """As curl sends it: `--data-binary @policy.yaml`."""
    import aiohttp

    life = FakeLife()
    with socket_folder() as folder:
        async with administered(folder / SOCKET, life, explained):
            connector = aiohttp.UnixConnector(str(folder / SOCKET))
            async with aiohttp.ClientSession("http://x", connector=connector) as session:
                async with session.post("/v1/policy", data=b"revision: \xff") as answer:
                    assert answer.status == 200
    assert life.asked[0][0] == Wish(b"revision: \xff")
