# Completion of `conductor` for bash: the program itself knows its verbs and options.
_conductor() {
    local IFS=$'\n' line type value
    COMPREPLY=()
    while read -r line; do
        IFS=',' read -r type value <<<"$line"
        case $type in
        dir) compopt -o dirnames ;;
        file) compopt -o default ;;
        plain) COMPREPLY+=("$value") ;;
        esac
    done < <(COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD _CONDUCTOR_COMPLETE=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F _conductor conductor
