"""The header fields of the legacy protocols, with their keys in the amps protocol.

Some fields have the meaning of an option of the amps protocol; `as_amps` converts them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Field(NamedTuple):
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
    Field("c", "20000", "Cmd"),
    Field("cid", "20001", "CmdId"),
    Field("client_name", "20002", "ClntName"),
    Field("user_id", "20003", "UsrId"),
    Field("ts", "20004", "TxmTm"),
    Field("t", "20005", "Tpc"),
    Field("f", "20006", "Fltr"),
    Field("mt", "20007", "MsgTyp"),
    Field("a", "20008", "AckTyp"),
    Field("sub_id", "20009", "SubId"),
    Field("version", "20011", "Version"),
    Field("e", "20012", "Expn"),
    Field("data_only", "20014", "DatOnly"),
    Field("heartbeat", "20015", "Hrtbt"),
    Field("timeout_interval", "20016", "TmIntvl"),
    Field("lp", "20017", "LeasePeriod"),
    Field("status", "20018", "Status"),
    Field("query_id", "20019", "QId"),
    Field("send_oof", "20020", "SndOOF"),
    Field("use_ns", "20022", "UseNS"),
    Field("bs", "20023", "BtchSz"),
    Field("top_n", "20025", "TopN"),
    Field("send_empty", "20029", "SndEmpty"),
    Field("sow_keys", "20032", "SowKeys"),
    Field("send_keys", "20033", "SndKeys"),
    Field("x", "20035", "CorrelationId"),
    Field("s", "20036", "Seq"),
    Field("bm", "20037", "BkMrk"),
    Field("pw", "20038", "PW"),
    Field("o", "20039", "Opts"),
    Field("records_inserted", "20052", "RecordsInserted"),
    Field("records_updated", "20053", "RecordsUpdated"),
    Field("records_deleted", "20054", "RecordsDeleted"),
    Field("records_returned", "20055", "RecordsReturned"),
    Field("topic_matches", "20056", "TopicMatches"),
    Field("matches", "20057", "Matches"),
    Field("l", "20058", "MsgLen"),
    Field("k", "20059", "SowKey"),
    Field("gseq", "20060", "GrpSqNum"),
    Field("sids", "20061", "SubIds"),
    Field("reason", "20062", "Reason"),
)
"""Without fields that are obsolete in the reference, or unused by all commands and messages."""

BY_KEY: Final = {field.key: field for field in FIELDS}
"""The fields by their keys in the amps protocol."""
BY_KEY["opts"] = BY_KEY["o"]  # the key in acks, with the backlog of a queue's consumer


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
