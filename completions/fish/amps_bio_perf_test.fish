# Completes amps_bio_perf_test in fish; made by amps_bio_perf_test --print-completion fish.
complete -c amps_bio_perf_test -f
complete -c amps_bio_perf_test -l json -d 'print the metrics as a JSON object'
complete -c amps_bio_perf_test -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps_bio_perf_test -l version -d 'show the version, then exit'
complete -c amps_bio_perf_test -s h -l help -d 'show this, then exit'
complete -c amps_bio_perf_test -s b -l batch_size -x -d 'messages that are written at once, 1 to 256 (128)'
complete -c amps_bio_perf_test -s m -l message_size -x -d 'of a message: 256 to 131072, a multiple of 256 (512)'
complete -c amps_bio_perf_test -s s -l file_size -x -d 'what is written in all, at most 8192 (1024)'
complete -c amps_bio_perf_test -s r -l read_mix -x -d 'of all operations that are to be reads, 0 to 99 (0)'
complete -c amps_bio_perf_test -s f -l file -r -F -d 'a new file on the disk that is to be measured; it is removed afterwards'
complete -c amps_bio_perf_test -l durable -d 'have each write on stable storage before the next, as a commit of the server'
