# Completes ampserr in fish; made by ampserr --print-completion fish.
complete -c ampserr -f
complete -c ampserr -l json -d 'print a JSON object for each message'
complete -c ampserr -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c ampserr -l version -d 'show the version, then exit'
complete -c ampserr -s h -l help -d 'show this, then exit'
