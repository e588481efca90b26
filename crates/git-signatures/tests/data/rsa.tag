object ca616524200152473c6852cb98c415921c7ec0f7
type commit
tag v1
tagger Author <author@example.com> 1795564136 +0000

tagged by rsa
-----BEGIN PGP SIGNATURE-----

iQEzBAABCgAdFiEEGbvh7p3dF9nT+tJtW+yvaVUgLd0FAmsGImgACgkQW+yvaVUg
Ld3Degf+Ly53Pz/fw9D9bodcHIUlDMr+ytdbUt/25kgB/Mgpa6z0VGYbmGzT/Z+d
MnnJp3GFWinga8g5wu5xWexW7klTm86dG9M49KOuH+ZkNUe0qSoUjCrkwOImUq0X
wrC5nqHOfxRFOaXS1EKnVCRBxnE8r340X2krfIPKsAcb0o06Y0nW+PxDMH8Zuov/
TvTS4msbkJggYaEp9jfE7iw25tmuXZksShqfo1fADwGcS6cgU43Pv1reK1SXx9Me
bqt5KIGlgnajzawXzo9BhKI8b/RxcyQj7Ku0C9FesJ0/DMkM6e96DU808j/rEefj
2LVdOBeUTLwDPrIVD5fPwYE81QDCuA==
=Q3sr
-----END PGP SIGNATURE-----
