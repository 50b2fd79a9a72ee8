# Makes a git repository of N small files, 100 in a directory. To be sourced.
#
#   make_repository DIR N

git="git -c safe.directory=* -c gc.auto=0 -c user.name=measure -c user.email=measure@localhost"

make_repository() (
    cd "$1"
    for ((first = 0; first < $2; first += 100)); do
        mkdir -p "$((first / 10000))/$first"
        (cd "$((first / 10000))/$first" && for ((n = 0; n < 100; n++)); do echo "$first $n" >"$n"; done)
    done
    $git init -q
    $git add .
    $git commit -q -m files
)
