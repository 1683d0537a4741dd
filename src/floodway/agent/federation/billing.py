"""Bills on their way: the taker sends what is due, the giver books it entry by entry and says what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from floodway.agent.federation import api
from floodway.agent.federation.books import Books, ServiceSample, ServiceWatch
from floodway.agent.federation.journal_rows import BookedEntry, fragment_of
from floodway.agent.federation.participant_figures import ParticipantFigures
from floodway.agent.federation.participant_journal import Journal
from floodway.agent.federation.partners import Partners
from floodway.agent.wire.client import PeerError
from floodway.contracts.contract import Contract
from floodway.contracts.payment import PaymentReason

MOST_ENTRIES = 1000
"""In one bill; the rest goes with the next."""
DISPUTE_PERIODS = 6
"""How many periods pass before what was refused is sent again."""


class Billing:
    """One participant's bills, to its givers and from its takers; `watch` is how fragments were served."""

    def __init__(
        self,
        name: str,
        books: Books,
        journal: Journal,
        partners: Partners,
        contracts: Iterable[Contract],
        figures: ParticipantFigures,
        at: Callable[[str], None],
    ) -> None:
        self.watch = ServiceWatch()
        self._name = name
        self._books = books
        self._journal = journal
        self._partners = partners
        self._late = {
            one.taker: one.service.max_delay_seconds for one in contracts if one.giver == name and one.service
        }
        self._figures = figures
        self._at = at
        self._again_at = self._sum_at = -float("inf")

    def send(self, now: float, *, timeout_seconds: float) -> None:
        """Close what is over, book what is due, and send to every giver what it has not agreed to."""
        self._books.close_moves(now)
        again = now >= self._again_at
        if again:
            self._again_at = now + DISPUTE_PERIODS * self._books.period_seconds
        for giver, entries in self._books.bill(self.watch, disputed=again).items():
            self._at("taker:billing")
            try:
                self._exchange(giver, entries[:MOST_ENTRIES], timeout_seconds)
            except PeerError:
                continue  # counted; it is sent again
            except Exception as error:  # an answer that is none, say, which is no other giver's fault
                self._figures.fail(f"bill to {giver}", error)
        if now >= self._sum_at:  # once a period: it reads the whole journal
            self._sum_at = now + self._books.period_seconds
            self._figures.balance = self._journal.balances().get(self._name, 0.0)

    def _exchange(self, giver: str, entries: list[BookedEntry], timeout_seconds: float) -> None:
        body = api.bill_body(self._name, entries)
        answer = self._partners.post(giver, "/v1/bill", body, timeout_seconds=timeout_seconds)
        self._at("taker:billed")
        sent = {one.entry.id for one in entries}  # of what others owe a giver has nothing to say
        self._journal.agree(sent & {str(one) for one in answer["booked"]})
        refused = {str(one): str(why) for one, why in answer.get("refused", {}).items()}
        self._journal.dispute({one: why for one, why in refused.items() if one in sent})

    def receive(self, sender: str, entries: list[BookedEntry], now: float) -> dict[str, Any]:
        """Book a taker's entries one by one: the ids of those booked, and the reasons by id for those refused."""
        booked, refused = self._books.book(entries, sender, now)
        self._at("giver:booked")
        late = self._late.get(sender)
        self._figures.served(sender, booked, {} if late is None else {fragment_of(one): late for one in booked})
        for one in booked:
            if one.entry.reason is PaymentReason.LOAD:  # for whoever pays this participant to have it run
                self.watch.note(
                    fragment_of(one), (one.start + one.entry.at) / 2, ServiceSample(one.delay_seconds, one.keep)
                )
        return {"booked": [one.entry.id for one in booked], "refused": refused}
