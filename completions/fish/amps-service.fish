# Completes amps-service in fish; made by amps-service --print-completion fish.
complete -c amps-service -f
complete -c amps-service -a 'install uninstall'
complete -c amps-service -l json -d 'print a JSON object for each thing that is done or to be done, and each warning'
complete -c amps-service -l print-completion -x -a 'bash fish zsh' -d 'print what completes this command in a shell (bash, fish, zsh), then exit'
complete -c amps-service -l version -d 'show the version, then exit'
complete -c amps-service -s h -l help -d 'show this, then exit'
complete -c amps-service -l root -r -F -d 'an image of a machine, instead of this one; nothing is started or registered'
complete -c amps-service -l user -x -d 'whom the service runs as (amps)'
complete -c amps-service -l init -x -a 'systemd sysv' -d 'the init system, if not the one that is found'
