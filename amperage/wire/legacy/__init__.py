"""The legacy protocols: commands and messages whose headers are FIX, NVFIX, XML or SOAP.

    fix, nvfix   20000=publish SOH 20005=orders SOH STX 37=1 SOH 54=1 SOH
    xml, soap    <SOAP-ENV:Envelope><SOAP-ENV:Header><Cmd>publish</Cmd><Tpc>orders</Tpc>
                 </SOAP-ENV:Header><SOAP-ENV:Body><order/></SOAP-ENV:Body></SOAP-ENV:Envelope>

The rest of the server speaks the amps protocol only. At the edge of a connection `LegacyPeer`
(peer.py) turns what comes in into frames of the amps protocol, and such frames into what goes out.
At the other end `LegacyCaller` (caller.py) does the same for a client. What the two header formats
look like is the business of one dialect each (fix.py, envelope.py); which fields there are is a
table (fields.py). Either way a message has its length before it, as in the amps protocol.

Source: AMPS Command Reference, Legacy Protocols Reference. What it leaves open is told in
docs/compatibility.md.
"""
