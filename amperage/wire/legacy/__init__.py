"""The legacy protocols: commands and messages with headers in FIX, NVFIX, XML or SOAP.

    fix, nvfix   20000=publish SOH 20005=orders SOH STX 37=1 SOH 54=1 SOH
    xml, soap    <SOAP-ENV:Envelope><SOAP-ENV:Header><Cmd>publish</Cmd><Tpc>orders</Tpc>
                 </SOAP-ENV:Header><SOAP-ENV:Body><order/></SOAP-ENV:Body></SOAP-ENV:Envelope>

The rest of the server handles the amps protocol only. At the edge of a connection `LegacyPeer`
(peer.py) translates input to frames of the amps protocol, and such frames to output. At the other
end `LegacyCaller` (caller.py) does the same for a client. Each of the two header formats is
implemented by one dialect (fix.py, envelope.py); their fields are a table (fields.py). In both, a
message has its length before it, as in the amps protocol.

Source: AMPS Command Reference, Legacy Protocols Reference. Our choices for its open points are in
docs/compatibility.md.
"""
