# Completes amps_tx_topic_index_dump in fish; made by amps_tx_topic_index_dump --print-completion fish.
complete -c amps_tx_topic_index_dump -l json -d 'print JSON: an object for each file, each topic, and each entry'
complete -c amps_tx_topic_index_dump -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps_tx_topic_index_dump -l version -d 'show the version, then exit'
complete -c amps_tx_topic_index_dump -s h -l help -d 'show this, then exit'
complete -c amps_tx_topic_index_dump -l topic -x -d 'the entries of this topic'
complete -c amps_tx_topic_index_dump -l topic-hash -x -d 'the entries of the topic with this hash, as amps_journal_dump shows it'
complete -c amps_tx_topic_index_dump -l message-type -x -d 'only topics of this message type'
