# Completes amps_file in fish; made by amps_file --print-completion fish.
complete -c amps_file -l json -d 'print a JSON object for each file'
complete -c amps_file -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps_file -l version -d 'show the version, then exit'
complete -c amps_file -s h -l help -d 'show this, then exit'
