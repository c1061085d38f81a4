// The platform that the core is built for: 1 on Linux, 0 elsewhere.
//
// Define REMUDA_PORTABLE to build the version for other systems on Linux, so that it can be tested there.
#pragma once

#if defined(__linux__) && !defined(REMUDA_PORTABLE)
#define REMUDA_LINUX 1
#else
#define REMUDA_LINUX 0
#endif
