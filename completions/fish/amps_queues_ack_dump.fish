# Completes amps_queues_ack_dump in fish; made by amps_queues_ack_dump --print-completion fish.
complete -c amps_queues_ack_dump -l json -d 'print JSON: an object for each file, and each of its queues'
complete -c amps_queues_ack_dump -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps_queues_ack_dump -l version -d 'show the version, then exit'
complete -c amps_queues_ack_dump -s h -l help -d 'show this, then exit'
complete -c amps_queues_ack_dump -s n -l limit -x -d 'queues to print per file at most'
