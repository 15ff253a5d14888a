/* Functions of libtutti and libtutti_rpc that our libraries above and perf's programs call, and no
 * other program may. They are exported as libtutti_NAME, so that they clash with nothing, with a
 * symbol version that names the release: those of different releases refuse to load together. */
#ifndef CORE_WORDS_EXPORT_H
#define CORE_WORDS_EXPORT_H

#define TUTTI_PRIVATE(name) __asm__("libtutti_" #name) __attribute__((visibility("default")))

#endif
