# One source of reduction kernels, compiled for several instruction sets; memory/reduce.c chooses at run
# time. Always optimised: without it, and above all without vectors, tests of large messages take minutes.
set_source_files_properties(memory/reduce_base.c PROPERTIES COMPILE_OPTIONS "-O3")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|amd64|AMD64)$")
	set_source_files_properties(memory/reduce_avx2.c PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mf16c")
	set_source_files_properties(memory/reduce_avx512.c PROPERTIES COMPILE_OPTIONS
		"-O3;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mf16c;-mprefer-vector-width=512")
endif()
