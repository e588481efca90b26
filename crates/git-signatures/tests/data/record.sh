#!/bin/sh
# Makes the files beside it with the installed git, gpg (2.2) and ssh-keygen: objects as `git cat-file` prints them, and public keys. Every run
# makes other keys; the tests need all of it from one run. Run: sh record.sh
set -eu
out=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'gpgconf --homedir "$work/gnupg" --kill all 2>/dev/null || true; rm -rf "$work"' EXIT
export GNUPGHOME="$work/gnupg" HOME="$work" GIT_CONFIG_NOSYSTEM=1
mkdir -m 700 "$GNUPGHOME"
rm -f "$out"/*.commit "$out"/*.tag "$out"/*.asc "$out"/*.sshpub

# key NAME ALGORITHM USAGE EXPIRY [OPTION...]: makes a key of OpenPGP; prints its fingerprint
key() {
  name=$1 algorithm=$2 usage=$3 expiry=$4
  shift 4
  gpg --batch --quiet "$@" --passphrase '' --quick-generate-key "$name <$name@example.com>" "$algorithm" "$usage" "$expiry" 2>/dev/null
  gpg --batch --list-keys --with-colons "$name@example.com" 2>/dev/null | awk -F: '/^fpr/ { print $10; exit }'
}
keep() { gpg --batch --armor --export "$1" > "$out/$1.asc"; }

git init --quiet "$work/repository"
cd "$work/repository"
git config user.name Author
git config user.email author@example.com
tree=$(git write-tree)

# commit NAME FORMAT KEY [PROGRAM]: a signed commit
commit() {
  git -c gpg.format="$2" -c gpg.program="${4:-gpg}" commit-tree "-S$3" -m "signed by $1" "$tree" > "$work/id"
  git cat-file commit "$(cat "$work/id")" > "$out/$1.commit"
}
# tag NAME FORMAT KEY TAG
tag() {
  git -c gpg.format="$2" tag -s -u "$3" -m "tagged by $1" "$4" "$(git commit-tree -m 'not signed' "$tree")"
  git cat-file tag "$4" > "$out/$1.tag"
}

rsa=$(key rsa rsa2048 sign never); keep rsa; commit rsa openpgp "$rsa"; tag rsa openpgp "$rsa" v1
for curve in p256 p384; do
  id=$(key "$curve" "nist$curve" sign never); keep "$curve"; commit "$curve" openpgp "$id"
done
id=$(key brainpool brainpoolP256r1 sign never); keep brainpool; commit brainpool openpgp "$id"

# A primary key that only certifies, and a subkey that signs; then a second subkey, which is revoked after it signed.
id=$(key subkey ed25519 cert never)
gpg --batch --quiet --passphrase '' --quick-add-key "$id" ed25519 sign never
first=$(gpg --batch --list-keys --with-colons "$id" | awk -F: '/^fpr/ { last = $10 } END { print last }')
commit subkey openpgp "$first!"
tag subkey openpgp "$first!" v2
gpg --batch --quiet --passphrase '' --quick-add-key "$id" ed25519 sign never
second=$(gpg --batch --list-keys --with-colons "$id" | awk -F: '/^fpr/ { last = $10 } END { print last }')
commit subkey-revoked openpgp "$second!"
printf 'key %s\nrevkey\ny\n0\n\ny\nsave\n' "$second" | gpg --quiet --no-tty --command-fd 0 --status-fd 2 --edit-key "$id" > /dev/null 2>&1
keep subkey

# A key that was good when it signed, and one whose expiry its owner has moved.
cat > "$work/gpg-2020" <<PROGRAM
#!/bin/sh
exec gpg --faked-system-time 20200601T000000! "\$@"
PROGRAM
chmod +x "$work/gpg-2020"
for name in expired prolonged; do
  id=$(key "$name" ed25519 sign 1y --faked-system-time '20200101T000000!')
  commit "$name" openpgp "$id" "$work/gpg-2020"
done
gpg --batch --quiet --passphrase '' --quick-set-expire "$id" 50y
keep expired; keep prolonged

id=$(key revoked ed25519 sign never); commit revoked openpgp "$id"
keep revoked; mv "$out/revoked.asc" "$out/before-revocation.asc"
sed 's/^:-----BEGIN/-----BEGIN/' "$GNUPGHOME/openpgp-revocs.d/$id.rev" | gpg --batch --quiet --import 2>/dev/null
keep revoked

# Hashes that are broken: of a commit, and in what an old key says of itself.
printf '#!/bin/sh\nexec gpg --digest-algo SHA1 "$@"\n' > "$work/gpg-sha1"
chmod +x "$work/gpg-sha1"
commit weak openpgp "$rsa" "$work/gpg-sha1"
id=$(key old rsa2048 sign never --cert-digest-algo SHA1); keep old; commit old openpgp "$id"

for kind in ed25519 ecdsa-256 ecdsa-384 ecdsa-521 rsa-3072; do
  bits=${kind#*-}
  [ "$bits" != "$kind" ] && bits="-b $bits" || bits=
  ssh-keygen -q -t "${kind%%-*}" $bits -N '' -C "$kind" -f "$work/$kind"
  cp "$work/$kind.pub" "$out/ssh-$kind.sshpub"
  commit "ssh-$kind" ssh "$work/$kind"
done
tag ssh-ed25519 ssh "$work/ed25519" v3
git commit-tree -m 'not signed' "$tree" > "$work/id"
git cat-file commit "$(cat "$work/id")" > "$out/not-signed.commit"

# The same payload, signed by ssh-keygen itself: for another purpose, and with the other hash.
resign() {
  rm -f "$work/payload.sig"
  ssh-keygen -q -Y sign -n "$2" $3 -f "$work/ed25519" "$work/payload" 2>/dev/null
  { sed '/^$/,$d' "$work/payload"; sed '1s/^/gpgsig /; 2,$s/^/ /' "$work/payload.sig"; sed -n '/^$/,$p' "$work/payload"; } > "$out/$1.commit"
}
cp "$out/not-signed.commit" "$work/payload"
resign ssh-for-files file ''
resign ssh-sha256 git '-O hashalg=sha256'
