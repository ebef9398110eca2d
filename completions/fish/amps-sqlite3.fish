# Completes amps-sqlite3 in fish; made by amps-sqlite3 --print-completion fish.
complete -c amps-sqlite3 -l json -d 'print each row as a JSON object'
complete -c amps-sqlite3 -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps-sqlite3 -l version -d 'show the version, then exit'
complete -c amps-sqlite3 -s h -l help -d 'show this, then exit'
complete -c amps-sqlite3 -l size -d 'show how large each table is'
