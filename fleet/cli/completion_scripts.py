"""The scripts that shells load for completion. Each calls `fleet --complete` and takes its lines as data."""

from typing import Literal, get_args

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = get_args(Shell)
MARK = "# made by `fleet completion`"

_BASH = (
    MARK
    + r"""
_fleet_completion() {
    local line files current=${COMP_WORDS[COMP_CWORD]}
    [[ $current == '=' ]] && current=
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files) files=-f ;;
            :folders) files=-d ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <(command fleet --complete "$COMP_CWORD" "${COMP_WORDS[@]}" 2>/dev/null)
    if [[ -n $files ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$files" -- "$current")
    fi
}
complete -F _fleet_completion fleet
"""
)

_ZSH = (
    "#compdef fleet\n"
    + MARK
    + r"""
_fleet() {
    local line files
    local -a values
    while IFS= read -r line; do
        case $line in
            :files) files=all ;;
            :folders) files=folders ;;
            *$'\t'*) values+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
            *) values+=("${line//:/\\:}") ;;
        esac
    done < <(command fleet --complete "$((CURRENT - 1))" "${(@Q)words}" 2>/dev/null)
    (( ${#values} )) && _describe -t values fleet values
    case $files in
        all) _files ;;
        folders) _files -/ ;;
    esac
}
if [[ ${funcstack[1]} == _fleet ]]; then _fleet "$@"; else compdef _fleet fleet; fi
"""
)

_FISH = (
    MARK
    + r"""
function __fleet_completion
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    for line in (command fleet --complete (count $before) $before $current 2>/dev/null)
        switch $line
            case :files
                __fish_complete_path $current
            case :folders
                __fish_complete_directories $current
            case '*'
                printf '%s\n' $line
        end
    end
end
complete -c fleet -f -a '(__fleet_completion)'
"""
)

SCRIPTS: dict[Shell, str] = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
PLACES: dict[Shell, tuple[str, str]] = {
    "bash": ("~/.local/share/bash-completion/completions/fleet", "open a new shell to use it"),
    "zsh": ("~/.zfunc/_fleet", "add to ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": ("~/.config/fish/completions/fleet.fish", "open a new shell to use it"),
}
"""Where `--install` writes a script, and what else is needed."""
