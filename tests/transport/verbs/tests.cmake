foreach(name test_verbs_registered test_verbs_fake_registered test_verbs_fake_registered_frames)
	target_link_options(${name} PRIVATE LINKER:--wrap=malloc,--wrap=calloc,--wrap=free)
endforeach()
