# One source of reduction kernels, compiled for several instruction sets; core/simd.c chooses at run
# time. No-trapping: nobody reads the floating point exception flags; no bit of a result depends on it, and
# loops that select become vector code. Optimised in every build: tests of large messages are slow enough.
set(kernel_flags -O3 -fno-trapping-math)
# With a sanitizer gcc takes two to three times as long for each at -O3 as at -O1 (20 s and 7 s for reduce_base.c with ASan).
if(CMAKE_C_FLAGS MATCHES "-fsanitize")
	set(kernel_flags -O1 -fno-trapping-math)
endif()
set(avx2_flags -mavx2 -mf16c)
set(avx512_flags ${avx2_flags} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)

# The loops of train/precision/kernels.c. No code reads errno after a square root; errno would prevent vector code.
set(train_flags ${kernel_flags} -fno-math-errno)
set_source_files_properties(train/precision/kernel_base.c train/precision/exact_sum.c PROPERTIES
	COMPILE_OPTIONS "${train_flags}")
set_source_files_properties(core/memory/reduce_base.c PROPERTIES COMPILE_OPTIONS "${kernel_flags}")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
	set_source_files_properties(core/memory/reduce_avx2.c PROPERTIES
		COMPILE_OPTIONS "${kernel_flags};${avx2_flags}")
	set_source_files_properties(core/memory/reduce_avx512.c PROPERTIES
		COMPILE_OPTIONS "${kernel_flags};${avx512_flags}")
	set_source_files_properties(train/precision/kernel_avx2.c PROPERTIES
		COMPILE_OPTIONS "${train_flags};${avx2_flags}")
	set_source_files_properties(train/precision/kernel_avx512.c PROPERTIES
		COMPILE_OPTIONS "${train_flags};${avx512_flags}")
	# Compilers of before 2021 lack these; then so does the binary, and those files are empty.
	include(CheckCCompilerFlag)
	check_c_compiler_flag("-mavx512bf16 -mavx512fp16" HAS_AVX512_FP16)
	if(HAS_AVX512_FP16)
		set_source_files_properties(core/memory/reduce_avx512_bf16.c PROPERTIES
			COMPILE_OPTIONS "${kernel_flags};${avx512_flags};-mavx512bf16")
		set_source_files_properties(core/memory/reduce_avx512_fp16.c PROPERTIES
			COMPILE_OPTIONS "${kernel_flags};${avx512_flags};-mavx512fp16")
		set_source_files_properties(core/simd.c core/memory/reduce.c core/memory/reduce_avx512.c PROPERTIES
			COMPILE_DEFINITIONS SIMD_HAS_FP16)
	endif()
endif()
