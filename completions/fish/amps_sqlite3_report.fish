# Completes amps_sqlite3_report in fish; made by amps_sqlite3_report --print-completion fish.
complete -c amps_sqlite3_report -l json -d 'print each row as a JSON object, with the name of its table'
complete -c amps_sqlite3_report -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps_sqlite3_report -l version -d 'show the version, then exit'
complete -c amps_sqlite3_report -s h -l help -d 'show this, then exit'
