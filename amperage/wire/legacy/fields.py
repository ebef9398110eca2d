"""The header fields of the legacy protocols, with their keys in the amps protocol.

Some fields have the meaning of an option of the amps protocol; `as_amps` converts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class LegacyField(NamedTuple):
    """One header field.

    Attributes:
        key: its key in a header of the amps protocol, or the name of a field that has none there.
        tag: its tag in the protocols fix and nvfix.
        element: the name of its element in the protocols xml and soap.
    """

    key: str
    tag: str
    element: str


FIELDS: Final = (
    LegacyField("c", "20000", "Cmd"),
    LegacyField("cid", "20001", "CmdId"),
    LegacyField("client_name", "20002", "ClntName"),
    LegacyField("user_id", "20003", "UsrId"),
    LegacyField("ts", "20004", "TxmTm"),
    LegacyField("t", "20005", "Tpc"),
    LegacyField("f", "20006", "Fltr"),
    LegacyField("mt", "20007", "MsgTyp"),
    LegacyField("a", "20008", "AckTyp"),
    LegacyField("sub_id", "20009", "SubId"),
    LegacyField("version", "20011", "Version"),
    LegacyField("e", "20012", "Expn"),
    LegacyField("data_only", "20014", "DatOnly"),
    LegacyField("heartbeat", "20015", "Hrtbt"),
    LegacyField("timeout_interval", "20016", "TmIntvl"),
    LegacyField("lp", "20017", "LeasePeriod"),
    LegacyField("status", "20018", "Status"),
    LegacyField("query_id", "20019", "QId"),
    LegacyField("send_oof", "20020", "SndOOF"),
    LegacyField("use_ns", "20022", "UseNS"),
    LegacyField("bs", "20023", "BtchSz"),
    LegacyField("top_n", "20025", "TopN"),
    LegacyField("send_empty", "20029", "SndEmpty"),
    LegacyField("sow_keys", "20032", "SowKeys"),
    LegacyField("send_keys", "20033", "SndKeys"),
    LegacyField("x", "20035", "CorrelationId"),
    LegacyField("s", "20036", "Seq"),
    LegacyField("bm", "20037", "BkMrk"),
    LegacyField("pw", "20038", "PW"),
    LegacyField("o", "20039", "Opts"),
    LegacyField("records_inserted", "20052", "RecordsInserted"),
    LegacyField("records_updated", "20053", "RecordsUpdated"),
    LegacyField("records_deleted", "20054", "RecordsDeleted"),
    LegacyField("records_returned", "20055", "RecordsReturned"),
    LegacyField("topic_matches", "20056", "TopicMatches"),
    LegacyField("matches", "20057", "Matches"),
    LegacyField("l", "20058", "MsgLen"),
    LegacyField("k", "20059", "SowKey"),
    LegacyField("gseq", "20060", "GrpSqNum"),
    LegacyField("sids", "20061", "SubIds"),
    LegacyField("reason", "20062", "Reason"),
)
"""Without fields that are obsolete in the reference, or unused by all commands and messages."""

FIELDS_BY_KEY: Final = {field.key: field for field in FIELDS}
"""The fields by their keys in the amps protocol."""
FIELDS_BY_KEY["opts"] = FIELDS_BY_KEY[
    "o"
]  # the key in acks, with the backlog of a queue's consumer


def is_true(value: str) -> bool:
    """Decode the value of a Boolean field."""
    return value.lower() == "true"


def as_amps(fields: Mapping[str, str]) -> dict[str, str]:
    """Convert a legacy header to the keys of the amps protocol.

    Args:
        fields: the header's fields, by their keys.

    Returns:
        The header of the amps protocol: key -> value.
    """
    header = dict(fields)
    options = [header.pop("o", ""), _heartbeat_option(header)]
    joined = ",".join(filter(None, options))
    if joined:
        header["o"] = joined
    return header


def _heartbeat_option(header: dict[str, str]) -> str:
    """Remove the fields of a heartbeat from a header, and return them as one option."""
    action = header.pop("heartbeat", "")
    interval = header.pop("timeout_interval", "")
    if header.get("c") != "heartbeat":
        return ""
    return f"start,{interval}" if action == "start" else action
