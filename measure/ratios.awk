# Reads lines "WHAT HOST MOUNT", one for each round. Prints the median, the least and the greatest
# ratio of mount to host for each WHAT, in the order of their first lines.
{
    if (!($1 in count)) name[++names] = $1
    new = $3 / $2
    for (at = ++count[$1]; at > 1 && ratio[$1, at - 1] > new; at--) ratio[$1, at] = ratio[$1, at - 1]
    ratio[$1, at] = new
}
END {
    for (n = 1; n <= names; n++) {
        what = name[n]
        printf "%s: mount / host = %.2f (%.2f to %.2f)\n", what, ratio[what, int((count[what] + 1) / 2)], ratio[what, 1], ratio[what, count[what]]
    }
}
