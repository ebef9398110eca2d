# Completes amps_journal_search in fish; made by amps_journal_search --print-completion fish.
complete -c amps_journal_search -l json -d 'print JSON: an object for each file in which there are any, and each entry'
complete -c amps_journal_search -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps_journal_search -l version -d 'show the version, then exit'
complete -c amps_journal_search -s h -l help -d 'show this, then exit'
complete -c amps_journal_search -s d -l data -x -d 'find messages that contain this'
complete -c amps_journal_search -o topic -l topic -x -d 'find messages on topics that contain this'
complete -c amps_journal_search -l no-data -d 'leave the messages\' bodies out'
complete -c amps_journal_search -l client -x -d 'find messages of this publisher; may be repeated'
