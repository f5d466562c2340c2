# torch without CUDA. The package index only has torch for NVIDIA GPUs. On a CPU, it never calls the CUDA libraries (5 GB), but
# does not start without them. Each replacement has a few kilobytes, and its functions return "no device". Recipes
# source this file and list it as an input; it needs cc and readelf.
# shellcheck shell=bash

without_cuda() { # DIR; adds the missing CUDA libraries that the libraries in DIR need
  local dir=$1 symbols=$1.symbols source=$1.c library
  cuda_symbols "$dir" > "$symbols"
  for library in $(cut -d ' ' -f 1 "$symbols" | uniq); do
    cuda_source "$library" "$symbols" "$1.versions" > "$source"
    cc -shared -fPIC -nostdlib -w -O1 -Wl,-soname,"$library" -Wl,--version-script="$1.versions" -o "$dir/torch/lib/$library" \
      "$source"
  done
  rm -f "$symbols" "$1.versions" "$source"
}

# Prints LIBRARY FUNCTION VERSION for each called function, sorted, with "-" for no version. A function without a version can be
# in any library of its caller, so all of them get it.
cuda_symbols() { # DIR
  local dir=$1 file dynamic needed library
  find "$dir" -name '*.so*' -type f -printf '%f\n' | sort -u > "$dir.present"
  find "$dir" -name '*.so*' -type f | while IFS= read -r file; do
    dynamic=$(readelf --wide --dynamic "$file" 2> /dev/null || true) # some are linker scripts
    needed=$(sed -n 's/.*(NEEDED).*\[\(lib\(cu\|nccl\|nv\)[^]]*\)\]/\1/p' <<< "$dynamic" | grep -vxFf "$dir.present" | grep -v '^libcu\(rl\|ps\)[-.]' || true)
    [[ -n $needed ]] || continue
    while IFS= read -r library; do printf "%s none -\n" "$library"; done <<< "$needed"
    readelf --wide --dyn-syms "$file" | awk -v needed="$needed" '
      $7 != "UND" || $8 ~ /^(curl_|cups)/ || $8 !~ /^(cu|nccl|nv|__cuda)/ { next }
      { count = split(needed, libraries, "\n"); split($8, parts, "@"); version = parts[2] ? parts[2] : "-" }
      { for (at = 1; at <= count; at++) if (owns(libraries[at], version)) print libraries[at], parts[1], version }
      # Versions have the names of their libraries, except NVSHMEM.
      function owns(library, version) {
        return version == "-" || version == library || (version == "NVSHMEM" && library ~ /^libnvshmem/)
      }'
  done | LC_ALL=C sort -u
  rm -f "$dir.present"
}

cuda_source() { # LIBRARY SYMBOLS VERSIONS; prints C code, and writes the linker's version script
  awk -v library="$1" -v versions="$3" '
    BEGIN {
      print "int no_device(void) { return 100; }"
      print "const char *no_text(void) { return \"no device\"; }"
    }
    $1 != library || $2 == "none" { next }
    $3 != "-" { version = $3 }
    !seen[$2]++ { print "int " $2 "(void) __attribute__((alias(\"" ($2 ~ /String/ ? "no_text" : "no_device") "\")));" }
    END { print version " { global: *; };" > versions }' "$2"
}
