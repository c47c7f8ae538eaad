# Two commands are enough: make demo, make test. Everything is idempotent: a second make does nothing.
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell nproc)
RUN ?= runs/demo
FUZZ_SECONDS ?= 60
ONLY ?=
PEER ?=
RUNS ?= 5
MINUTES ?= 10
TORCH = -DTORCH_PREFIX="$$(cat .deps/torch-prefix)"
CONFIGURE = cmake -S . -G Ninja --log-level=WARNING $(TORCH)
NINJA = NINJA_STATUS="[%f/%t] " ninja -j$(JOBS)
TESTS = -DOMNILOOM_BUILD_TESTS=ON -DOMNILOOM_TEST_PYTHON="$$(cat .deps/test-python)"
export TORCH_PREFIX CMAKE_PREFIX_PATH OMNILOOM_TEST_PYTHON OMNILOOM_BENCH_PYTHON

.PHONY: all setup build demo bench bench-build bench-long bench-mix test test-full sanitize tsan fuzz lint lint-full install clean
all: build

setup:
	@core/cmake/setup.sh build

build: setup
	@$(CONFIGURE) -B $(BUILD)
	@$(NINJA) -C $(BUILD)

demo:
	@core/cmake/setup.sh demo
	@$(CONFIGURE) -B $(BUILD)
	@$(NINJA) -C $(BUILD)
	$(BUILD)/bin/omniloom train configs/recipes/fashion_caption.yaml --run $(RUN) --replace
	$(BUILD)/bin/omniloom eval --run $(RUN) --swapped --report

# Against transformers, in alternating launches: tests/bench/README.md. ONLY=mixture PEER=padded RUNS=3 for a part of it.
bench-build:
	@core/cmake/setup.sh bench
	@$(CONFIGURE) -B $(BUILD) -DOMNILOOM_BUILD_BENCH=ON
	@$(NINJA) -C $(BUILD) all benches

bench: bench-build
	@python3 tests/bench/run.py --build $(BUILD) --python "$$(cat .deps/bench-python)" --only "$(ONLY)" --peer "$(PEER)" --runs $(RUNS)

# A changing mix on layouts of their own against one shared layout: needs configs/data/omni_toy.py once.
bench-mix: bench-build
	@python3 tests/bench/mix_sweep.py --build $(BUILD) --wall

bench-long: bench-build
	@"$$(cat .deps/bench-python)" tests/bench/long_run.py --build $(BUILD) --minutes $(MINUTES)

test:
	@core/cmake/setup.sh test
	@$(CONFIGURE) -B $(BUILD) $(TESTS)
	@$(NINJA) -C $(BUILD) all tests
	@ctest --test-dir $(BUILD) --output-on-failure -j$(JOBS)

test-full: export OMNILOOM_TEST_FULL = 1
test-full: test

sanitize:
	@core/cmake/setup.sh test
	@$(CONFIGURE) -B $(BUILD)-asan $(TESTS) -DOMNILOOM_SANITIZE=address,undefined
	@$(NINJA) -C $(BUILD)-asan all tests
	@ctest --test-dir $(BUILD)-asan --output-on-failure -j$(JOBS)

# Ranks and pools are threads: everything that shares state between them, under ThreadSanitizer. The suites are those of
# the folders named here; one gtest filter, made of the tests' own lines. ParallelFor is OpenMP's own threads, whose
# runtime is not instrumented.
TSAN_TESTS = $(foreach folder,base mesh comm reshard parallel,$(wildcard tests/core/$(folder)/*.cpp)) \
  tests/core/nn/split_services_test.cpp tests/core/data/step_feed_test.cpp \
  tests/core/data/bpe_tokenizer_test.cpp tests/core/data/bpe_trainer_test.cpp tests/core/train/trainer_ranks_test.cpp
tsan: export TSAN_OPTIONS = halt_on_error=1 second_deadlock_stack=1 suppressions=$(CURDIR)/tests/tsan.supp
tsan: export OMP_NUM_THREADS = 1
tsan:
	@core/cmake/setup.sh test
	@$(CONFIGURE) -B $(BUILD)-tsan -DOMNILOOM_BUILD_TESTS=ON -DOMNILOOM_SANITIZE=thread
	@$(NINJA) -C $(BUILD)-tsan unit_tests loopback_tests
	@suites=$$(sed -nE 's/^TEST(_F|_P)?\((\w+),.*/\2.*:*\/\2.*/p' $(TSAN_TESTS) | sort -u | paste -sd :)-ParallelFor.* && \
	  $(BUILD)-tsan/bin/unit_tests --gtest_brief=1 --gtest_filter="$$suites"
	@$(BUILD)-tsan/bin/loopback_tests --gtest_brief=1

# Foreign bytes against every parser, FUZZ_SECONDS each: clang++ with libFuzzer, AddressSanitizer and UBSan.
fuzz:
	@core/cmake/setup.sh fuzz
	@$(CONFIGURE) -B $(BUILD)-fuzz -DOMNILOOM_FUZZ=ON -DCMAKE_CXX_COMPILER=clang++
	@$(NINJA) -C $(BUILD)-fuzz
	@python3 tests/fuzz/run.py $(BUILD)-fuzz $(FUZZ_SECONDS)

lint lint-full:
	@core/cmake/setup.sh lint
	@$(CONFIGURE) -B $(BUILD)-lint -DOMNILOOM_BUILD_TESTS=ON -DOMNILOOM_PCH=OFF
	@$(NINJA) -C $(BUILD)-lint omniloom_fingerprint
	@core/cmake/lint.sh $(BUILD)-lint $(if $(filter lint-full,$@),all,changed)

# Compiles and links everything for GPUs, against LibTorch with CUDA; no GPU is needed, and none is used.
.PHONY: cuda-check
cuda-check: export JOBS := $(JOBS)
cuda-check: export OMNILOOM_CUDA_PREFIX := $(OMNILOOM_CUDA_PREFIX)
cuda-check:
	@core/cmake/cuda_check.sh $(BUILD)-cuda

install: build
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-fuzz $(BUILD)-lint $(BUILD)-cuda
