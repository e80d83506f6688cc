"""The settings of git that make it run a program, each with the plain git command that shows it.

From git's documentation, release 2.39 to 2.55: every key whose value is a command, a program, a file of more settings,
or an address that git turns into a program. `{program}` is the canary of the key: a script that leaves a mark.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

AMEND = "git commit -q --amend --allow-empty"
CHANGED = "touch -d 2001-01-01 a.flt; git status"
CONFLICT = "git merge side"
CREDENTIAL = "printf 'protocol=https\\nhost=h\\n\\n' | git credential fill"
FETCH, PUSH = "git fetch origin", "git push origin HEAD:refs/heads/x"
LOG_ON_TERMINAL = "script -qec 'git log' /dev/null"
SIGN = "git commit -q --allow-empty -m signed -S"
HOOKED = "git add a.flt; git commit -q --allow-empty -m hooked"
EMPTY = "rm -rf .git/modules/sub sub; mkdir sub"
EXT = {"protocol.ext.allow": "always"}


@dataclass(frozen=True, slots=True)
class Key:
    """One way to have git run a program."""

    value: str
    control: str
    """Command that makes plain git run the program. It must leave the mark, even if it fails."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Settings that it needs beside it."""
    since: tuple[int, int] = (2, 39)
    """First git release with this key. Older releases have no control."""
    needs: str = ""
    """A program that its control needs and not every machine has."""
    trusted_only: bool = False
    """Whether git obeys it on the command line and in the user's own files only."""


P = "{program}"
KEYS: Mapping[str, Key] = {
    # programs that git asks while it reads or writes a worktree
    "core.fsmonitor": Key(P, "git status"),
    "core.hooksPath": Key("{hooks}", HOOKED),
    "core.attributesFile": Key("{attributes}", "touch b.txt; git add b.txt", {"filter.named.clean": P}),
    "filter.evil.clean": Key(P, CHANGED),
    "filter.evil.smudge": Key(P, "rm a.flt; git checkout -- a.flt"),
    "filter.evil.process": Key(P, CHANGED),
    "merge.renormalize": Key("true", CONFLICT, {"filter.evil.clean": P}),
    "merge.evil.driver": Key(P, CONFLICT),
    "merge.default": Key("other", "git merge text", {"merge.other.driver": P}),
    "hook.evil.command": Key(P, HOOKED, {"hook.evil.event": "pre-commit"}, since=(2, 54)),
    "gc.recentObjectsHook": Key(P, "git prune --expire=now", since=(2, 42)),
    "core.alternateRefsCommand": Key(P, "git receive-pack . </dev/null"),
    "uploadpack.packObjectsHook": Key(P, "git clone -q --no-local . copy", trusted_only=True),
    # differences
    "diff.external": Key(P, "git diff HEAD~1"),
    "diff.evil.command": Key(P, "git diff HEAD~1"),
    "diff.evil.textconv": Key(P, "git diff HEAD~1"),
    "diff.tool": Key("evil", "git difftool -y HEAD~1", {"difftool.evil.cmd": P}),
    "difftool.evil.cmd": Key(P, "git difftool -y -t evil HEAD~1"),
    "difftool.meld.path": Key(P, "git difftool -y -t meld HEAD~1"),
    "diff.guitool": Key("evil", "git difftool -y -g HEAD~1", {"difftool.evil.cmd": P}),
    "interactive.diffFilter": Key(P, "echo more >> b.txt; script -qec 'git add -p' /dev/null", needs="script"),
    "merge.tool": Key("evil", f"{CONFLICT}; git mergetool -y", {"mergetool.evil.cmd": P}),
    "merge.guitool": Key("evil", f"{CONFLICT}; git mergetool -y -g", {"mergetool.evil.cmd": P}),
    "mergetool.evil.cmd": Key(P, f"{CONFLICT}; git mergetool -y -t evil"),
    "mergetool.vimdiff.path": Key(P, f"{CONFLICT}; git mergetool -y -t vimdiff"),
    # what shows and edits
    "core.pager": Key(P, LOG_ON_TERMINAL, needs="script"),
    "pager.log": Key(P, LOG_ON_TERMINAL, needs="script"),
    "pager.status": Key(P, "script -qec 'git status' /dev/null", needs="script"),
    "core.editor": Key(P, AMEND),
    "sequence.editor": Key(P, "git rebase -i HEAD~1"),
    "man.evil.cmd": Key(P, "git help -m log", {"man.viewer": "evil"}),
    "man.man.path": Key(P, "git help -m log"),
    "help.browser": Key("evil", "git help -w log", {"browser.evil.cmd": P, "help.htmlPath": "http://h"}),
    "browser.evil.cmd": Key(P, "git web--browse -t evil http://h"),
    "browser.firefox.path": Key(P, "git web--browse -t firefox http://h"),
    "web.browser": Key("evil", "git web--browse http://h", {"browser.evil.cmd": P}),
    "instaweb.httpd": Key(P, "git instaweb start"),
    "alias.evil": Key(f"!{P}", "git evil"),
    "alias.second.command": Key(f"!{P}", "git second", since=(2, 54)),
    "guitool.evil.cmd": Key(P, "git gui", needs="git-gui"),
    # messages, signatures, secrets
    "trailer.evil.command": Key(P, "git interpret-trailers --trailer evil=1 </dev/null"),
    "trailer.evil.cmd": Key(P, "git interpret-trailers --trailer evil=1 </dev/null"),
    "gpg.program": Key(P, SIGN),
    "gpg.openpgp.program": Key(P, SIGN),
    "gpg.x509.program": Key(P, SIGN, {"gpg.format": "x509"}),
    "gpg.ssh.program": Key(P, SIGN, {"gpg.format": "ssh", "user.signingKey": "/dev/null"}),
    "gpg.ssh.defaultKeyCommand": Key(P, SIGN, {"gpg.format": "ssh"}),
    "commit.gpgSign": Key("true", "git commit -q --allow-empty -m signed", {"gpg.program": P}),
    "tag.gpgSign": Key("true", "git tag -m signed v9", {"gpg.program": P}),
    "log.showSignature": Key("true", "git log signed", {"gpg.program": P}),
    "merge.verifySignatures": Key("true", "git merge signed", {"gpg.program": P}),
    "push.gpgSign": Key("if-asked", "git push --signed origin HEAD:refs/heads/x", {"gpg.program": P}),
    "credential.helper": Key(P, CREDENTIAL),
    "credential.https://h.helper": Key(P, CREDENTIAL),
    "core.askPass": Key(P, CREDENTIAL),
    # other repositories
    "core.sshCommand": Key(P, "git ls-remote ssh://h/x"),
    "core.gitProxy": Key(P, "git ls-remote git://h/x"),
    "remote.origin.uploadpack": Key(P, FETCH),
    "remote.origin.receivepack": Key(P, PUSH),
    "remote.origin.vcs": Key("canary", FETCH),
    "remote.origin.url": Key(f"ext::{P}", FETCH, EXT),
    "remote.origin.pushurl": Key(f"ext::{P}", PUSH, EXT),
    "branch.main.remote": Key(f"ext::{P}", "git fetch", EXT),
    "remote.pushDefault": Key(f"ext::{P}", "git push", {**EXT, "push.default": "current"}),
    "url.ext::{program} .insteadOf": Key("short:", "git ls-remote short:x", EXT),
    "url.ext::{program} .pushInsteadOf": Key("short:", "git push short:x HEAD", EXT),
    "extensions.partialClone": Key(
        "origin",
        "rm -f .git/objects/$(git rev-parse HEAD:b.txt | sed 's,..,&/,'); git cat-file -p HEAD:b.txt",
        {"core.repositoryFormatVersion": "1", "remote.origin.promisor": "true", "remote.origin.uploadpack": P},
    ),
    "submodule.sub.update": Key(f"!{P}", "git submodule update --init --force", {"submodule.sub.active": "true"}),
    "submodule.sub.url": Key(
        f"ext::{P}", f"{EMPTY}; GIT_ALLOW_PROTOCOL=ext git submodule update", {"submodule.sub.active": "true"}
    ),
    "imap.tunnel": Key(P, "git format-patch -1 --stdout | git imap-send", {"imap.folder": "x", "imap.host": "h"}),
    "sendemail.sendmailCmd": Key(P, "git send-email --to=a@h -1", needs="git-send-email"),
    "sendemail.smtpServer": Key(P, "git send-email --to=a@h -1", needs="git-send-email"),
    "sendemail.toCmd": Key(P, "git send-email -1", needs="git-send-email"),
    "tar.evil.command": Key(P, "git archive --format=evil HEAD"),
    # files with more settings
    "include.path": Key("{settings}", "git status"),
    "includeIf.gitdir:**.path": Key("{settings}", "git status"),
    "extensions.worktreeConfig": Key("true", "cp {settings} .git/config.worktree; git status"),
}
