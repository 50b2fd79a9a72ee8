# Draws the offsets of disk reads over time, as SVG: one panel for each run, all with the same axes,
# as seekwatcher does.
#
#   awk -f offsets.awk -v titles='ls -l;pando warm' reads.csv > reads.svg
#
# Input: start_us,end_us,node,offset,bytes (pando mount --trace-reads). The first read is one of the
# disk. Each run is between two reads of another file; reads outside of runs are not drawn.
BEGIN {
    FS = ","
    panels = split(titles, title, ";")
    run = marks = 0
}
NR == 1 { next }
disk == "" { disk = $3 }
$3 != disk { marks++; next }
marks % 2 == 0 { next }
{
    if (run != (marks + 1) / 2) { run = (marks + 1) / 2; begin[run] = $1; last_end = "" }
    n[run]++
    time[run, n[run]] = $1 - begin[run]
    offset[run, n[run]] = $4
    if (last_end != "") distance[run] += ($4 > last_end ? $4 - last_end : last_end - $4)
    last_end = $4 + $5
    took[run] = $2 - begin[run]
    if (took[run] > longest) longest = took[run]
    if ($4 + $5 > size) size = $4 + $5
}
END {
    if (run == 0) { print "offsets.awk: no reads" > "/dev/stderr"; exit 1 }
    left = 70; width = 860; panel = 190; gap = 50
    height = run * (panel + gap) + 30
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"13\">\n", left + width + 20, height
    printf "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
    for (r = 1; r <= run; r++) {
        top = (r - 1) * (panel + gap) + 34
        name = r <= panels ? title[r] : "run " r
        gsub(/&/, "\\&amp;", name); gsub(/</, "\\&lt;", name)
        printf "<text x=\"%d\" y=\"%d\" font-weight=\"bold\">%s</text>\n", left, top - 10, name
        printf "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555\">%d reads, %.1f s, seek distance %.1f GiB</text>\n", left + width, top - 10, n[r], took[r] / 1e6, distance[r] / 2^30
        printf "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#999\"/>\n", left, top, width, panel
        printf "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555\">%d MiB</text>\n", left - 6, top + 10, size / 2^20
        printf "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#555\">0</text>\n", left - 6, top + panel
        printf "<path fill=\"none\" stroke=\"#1f6f43\" stroke-width=\"2\" stroke-linecap=\"round\" d=\""
        for (i = 1; i <= n[r]; i++)
            printf "M%.1f %.1fh0", left + width * time[r, i] / longest, top + panel - panel * offset[r, i] / size
        printf "\"/>\n"
    }
    y = run * (panel + gap)
    for (tick = 0; tick <= 5; tick++)
        printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" fill=\"#555\">%.3g s</text>\n", left + width * tick / 5, y + 2, longest / 5e6 * tick
    print "</svg>"
}
