# libtutti.so and libtutti.a, both made of tutti_objects and tutti_revision, and both showing nothing but tutti_ names.

add_library(tutti SHARED)
target_link_libraries(tutti PRIVATE tutti_objects tutti_revision_object)
target_link_options(tutti PRIVATE -Wl,-z,defs -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/tutti.map)
set_target_properties(tutti PROPERTIES LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/tutti.map VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
	LINKER_LANGUAGE C)

# An archive cannot hide a symbol that two of its members share. So it has one member: all objects linked
# into one, in which hidden symbols are made local.
find_program(TUTTI_OBJCOPY NAMES objcopy REQUIRED)
set(one_object ${CMAKE_CURRENT_BINARY_DIR}/tutti.o)
set(all_objects $<TARGET_OBJECTS:tutti_objects> $<TARGET_OBJECTS:tutti_kernels_image> $<TARGET_OBJECTS:tutti_revision_object>)
add_custom_command(OUTPUT ${one_object}
	COMMAND ${CMAKE_LINKER} -r -o ${one_object} ${all_objects}
	COMMAND ${TUTTI_OBJCOPY} --localize-hidden ${one_object}
	DEPENDS ${all_objects}
	COMMENT "Linking tutti.o, hidden symbols made local"
	COMMAND_EXPAND_LISTS VERBATIM)
add_library(tutti_static STATIC ${one_object})
set_source_files_properties(${one_object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
set_target_properties(tutti_static PROPERTIES OUTPUT_NAME tutti LINKER_LANGUAGE C)
target_link_libraries(tutti_static INTERFACE sodium ${TUTTI_JSON_LIBRARY} Threads::Threads ${CMAKE_DL_LIBS} m)

foreach(library tutti tutti_static)
	target_include_directories(${library} INTERFACE
		$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
	add_library(Tutti::${library} ALIAS ${library})
endforeach()
